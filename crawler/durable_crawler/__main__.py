"""The console script, also as ``python -m durable_crawler``.

Ctrl-C or SIGTERM while the program is still loading ends it without a word; later, ``run`` has handlers of its own.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

from crawljob.exitcodes import ExitCode


def main() -> None:
    """Entry point."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _end)  # not the default: the first process of a container would not get it
    from durable_crawler import cli  # noqa: PLC0415 - loading takes half a second, in which they may come

    cli.main()


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(ExitCode.SIGTERM)


if __name__ == "__main__":
    main()
