"""The console script, also as ``python -m durable_crawler``.

Ctrl-C while the program is still loading ends it without a word; later, ``run`` has handlers of its own.
"""

from __future__ import annotations

import signal


def main() -> None:
    """Entry point."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from durable_crawler import cli  # noqa: PLC0415 - loading takes half a second, in which Ctrl-C may come

    cli.main()


if __name__ == "__main__":
    main()
