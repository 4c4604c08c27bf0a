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


def brotlied(data: bytes) -> bytes:
    """Compressed to br, with the largest window that there is."""
    return bytes(brotli.compress(data, quality=5, lgwin=24))


def zstded(data: bytes, window_log: int = 20) -> bytes:
    """One frame of zstd, whose window is 2 to the power of ``window_log``."""
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
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
