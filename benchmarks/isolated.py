"""A network of this process's own with nothing but loopback: no crawler that is measured can ask anything outside.

Links of real documentation lead out of the site, and not every crawler leaves all of them alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1
_REQUEST = "16sh14x"  # struct ifreq with its flags


def isolate() -> bool:
    """Leave the machine's network, for this thread and what it starts from now on; False where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare") or libc.unshare(_CLONE_NEWNET):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack(_REQUEST, b"lo", 0))
        name, flags = struct.unpack(_REQUEST, request)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack(_REQUEST, name, flags | _IFF_UP))
    return True


def interfaces() -> list[str]:
    """The names of the network interfaces that this thread has."""
    return [name for _, name in socket.if_nameindex()]
