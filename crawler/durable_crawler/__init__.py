"""The crawler: command line, engine, frontier, fetcher, parser, telemetry.

The stages of a page are the table of contents: claim → fetch → parse → settle → record → finish. ``engine`` walks them;
``frontier`` keeps what is known, ``fetch`` is the only door to the network, ``parse`` and ``settle`` are pure.
"""
