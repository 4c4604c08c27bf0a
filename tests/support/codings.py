"""Compresses as servers do: one function for each content coding that the crawler asks for."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def brotlied(data: bytes, quality: int = 5) -> bytes:
    """Compressed to br, with the largest window that there is."""
    return bytes(brotli.compress(data, quality=quality, lgwin=24))


def zstded(data: bytes, window_log: int = 20, level: int = 3) -> bytes:
    """One frame of zstd, whose window is 2 to the power of ``window_log``."""
    parameter = zstd.CompressionParameter
    packer = zstd.ZstdCompressor(options={parameter.window_log: window_log, parameter.compression_level: level})
    return packer.compress(data) + packer.flush()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotlied,
    "zstd": zstded,
}


def bomb(coding: str, size: int) -> bytes:
    """Decodes to ``size`` zeros: in gzip and deflate 1,000 times as much as it is, in br and zstd 10,000 times."""
    return COMPRESS[coding](bytes(size))
