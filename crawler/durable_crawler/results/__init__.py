"""What a crawl found, read from its frontier: for ``report``, ``export``, ``explain`` and the live page."""
