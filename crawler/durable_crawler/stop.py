"""A request to stop, as signals make it: the first asks, the second does not want to wait."""

from __future__ import annotations

import asyncio
import signal

from crawljob.exitcodes import ExitCode


class Stop:
    """Whether and how urgently the run was asked to end."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.requested = asyncio.Event()
        self.urgent = asyncio.Event()

    def request(self, number: signal.Signals) -> None:
        """Called for each SIGTERM and SIGINT."""
        if self.signal is None:
            self.signal = number
            self.requested.set()
        else:
            self.urgent.set()

    @property
    def exit_code(self) -> ExitCode:
        """What an interrupted run ends with."""
        return ExitCode.SIGINT if self.signal == signal.SIGINT else ExitCode.SIGTERM

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen for SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.request, number)
