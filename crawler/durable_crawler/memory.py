"""Keeps the process' memory together, and looks for garbage less often. To be called once, before threads are made."""

from __future__ import annotations

import ctypes
import gc

_M_ARENA_MAX = -8  # malloc.h

_YOUNG = 20_000


def fewer_collections() -> None:
    """A page leaves hardly any reference cycles, and is itself more than the 700 new objects after which Python looks
    for them otherwise. What the program is made of is not looked at again.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)


def one_heap() -> None:
    """One heap for all threads, so that what a large page needed is used again: glibc gives threads heaps of their own
    and keeps what each once had; a few 4 MiB pages then cost twice what they need.

    Does nothing where the C library is another one (musl has one heap).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_ARENA_MAX, 1)
