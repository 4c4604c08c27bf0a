"""Whose turn it is, without a look at everybody: the hosts with pages, in two orders. Used by ``board`` only.

Those that may be asked are queued by the number of their last turn, in trouble or not in a queue each; those that must
wait are queued by the time at which their gates open. Putting a host somewhere and taking the next one cost O(log n) of
the hosts, so that ten thousand of them make no page dearer than ten do.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", int, float)

_STALE_MAX = 64
"""Entries of a heap that mean nothing any more, besides one for each that does; then it is made anew."""


class _Queue(Generic[Key]):
    """Hosts by a number each, which may change: an entry that is not the host's latest is passed over."""

    def __init__(self) -> None:
        self._keys: dict[int, Key] = {}
        self._heap: list[tuple[Key, int]] = []

    def put(self, host: int, key: Key) -> bool:
        """Queue a host, or move it; whether that changes anything."""
        if self._keys.get(host) == key:
            return False
        self._keys[host] = key
        if len(self._heap) > 2 * len(self._keys) + _STALE_MAX:
            self._heap = [(key, host) for host, key in self._keys.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (key, host))
        return True

    def drop(self, host: int) -> None:
        """Take a host out; nothing where it is not in."""
        self._keys.pop(host, None)

    def first(self) -> tuple[Key, int] | None:
        """The smallest number and its host."""
        while self._heap:
            key, host = self._heap[0]
            if self._keys.get(host) == key:
                return key, host
            heappop(self._heap)
        return None

    def pop(self) -> int:
        """Take the first out. Raises ``IndexError`` where there is none."""
        self.first()
        _, host = heappop(self._heap)
        del self._keys[host]
        return host

    def __contains__(self, host: int) -> bool:
        return host in self._keys


class Turns:
    """Each host is in one of three queues, or in none."""

    def __init__(self) -> None:
        self._fine: _Queue[int] = _Queue()
        self._troubled: _Queue[int] = _Queue()
        self._shut: _Queue[float] = _Queue()

    def ready(self, host: int, turn: int, *, troubled: bool) -> None:
        """It may be asked; its last turn was ``turn``."""
        self._shut.drop(host)
        mine, other = (self._troubled, self._fine) if troubled else (self._fine, self._troubled)
        other.drop(host)
        mine.put(host, turn)

    def shut(self, host: int, until: float) -> bool:
        """It may not be asked before then; whether that is new."""
        self._fine.drop(host)
        self._troubled.drop(host)
        return self._shut.put(host, until)

    def leave(self, host: int) -> bool:
        """It is not to be asked; whether it was waiting for its gate."""
        waited = host in self._shut
        for queue in (self._fine, self._troubled, self._shut):
            queue.drop(host)
        return waited

    def opened(self, now: float) -> list[int]:
        """Take out those whose gates have opened."""
        hosts = []
        while (first := self._shut.first()) is not None and first[0] <= now:
            hosts.append(self._shut.pop())
        return hosts

    def next_opening(self) -> float | None:
        """When the next gate opens; ``None`` if none is shut."""
        first = self._shut.first()
        return None if first is None else first[0]

    def take(self, *, troubled: bool) -> int | None:
        """Take out the host whose turn it is; one in trouble only if it may be."""
        fine, other = self._fine.first(), self._troubled.first() if troubled else None
        if fine is None and other is None:
            return None
        queue = self._troubled if fine is None or (other is not None and other < fine) else self._fine
        return queue.pop()
