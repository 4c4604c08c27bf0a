"""Keeps the process' memory together: one heap for all threads, so that what a large page needed is used again.

glibc gives threads heaps of their own and keeps what each once had; a few 4 MiB pages then cost twice what they need.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h


def one_heap() -> None:
    """To be called before threads are made; does nothing where the C library is another one (musl has one heap)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_ARENA_MAX, 1)
