"""Blocking calls beside the event loop, in daemon threads: one that hangs holds up neither the loop nor the exit.

Used for DNS lookups and for parsing large pages. An executor's threads are joined when the process ends, and a lookup
cannot be cancelled: with them a run that was asked to stop would wait for the slowest name server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class Background:
    """At most ``limit`` threads at once; further calls wait their turn."""

    def __init__(self, limit: int, name: str) -> None:
        self._turns = asyncio.Semaphore(limit)
        self._name = name

    async def run(self, call: Callable[[], T]) -> T:
        """The result of ``call``, or what it raises; ``OSError`` where no thread can be started.

        A cancelled call goes on in its thread, and keeps its turn.
        """
        await self._turns.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def tell(answer: Callable[[], None]) -> None:
            self._turns.release()
            if not done.done():  # somebody still waits
                answer()

        def work() -> None:
            try:
                answer = partial(done.set_result, call())
            except BaseException as error:  # noqa: BLE001 - handed over to whoever waits
                answer = partial(done.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed: the run ended meanwhile
                loop.call_soon_threadsafe(tell, answer)

        try:
            threading.Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError as error:  # a container's limit of processes
            self._turns.release()
            raise OSError(f"no thread could be started: {error}") from None
        return await done
