"""What this crawler is measured against: small programs, each told by a JSON file what to crawl.

Each prints one line of JSON with the number of pages that it got, and keeps nothing else unless its name says so. The
file has ``seeds``, ``hosts`` (authorities), ``workers`` and ``per_host`` (requests at once), ``urls`` (a file with
every page, for a program that finds none by itself) and ``variant``.
"""
