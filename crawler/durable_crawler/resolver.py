"""Names to addresses by the system's own resolver, many at once.

Used by ``fetch`` only. The event loop's own lookups share four threads: a few dead names would make every other host
look dead as well.
"""

from __future__ import annotations

import socket
from functools import partial

from aiohttp.abc import AbstractResolver, ResolveResult

from durable_crawler.background import Background

LOOKUPS_MAX = 256
"""Lookups under way at once, those that nobody waits for any more included."""


class Resolver(AbstractResolver):
    """``getaddrinfo`` in threads of its own."""

    def __init__(self) -> None:
        self._background = Background(LOOKUPS_MAX, "name lookup")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """All addresses of ``host``. Raises ``OSError`` where there is none."""
        flags = socket.AI_ADDRCONFIG
        lookup = partial(socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM, flags=flags)
        found = await self._background.run(lookup)
        return [
            ResolveResult(
                hostname=host,
                host=_address(where),
                port=int(where[1]),
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, where in found
        ]

    async def close(self) -> None:
        """Nothing to close: lookups end by themselves, and end with the process."""


def _address(where: tuple[object, ...]) -> str:
    # A link-local address means nothing without its interface.
    scoped = len(where) == 4 and where[3]
    return f"{where[0]}%{where[3]}" if scoped else str(where[0])
