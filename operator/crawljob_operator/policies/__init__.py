"""The operator's policies, one per file: each looks at a ``View`` and has a ``Plan``, or leaves it to the next.

``decide`` asks them in the order of its table. All are pure: no clock, no API, no memory.
"""
