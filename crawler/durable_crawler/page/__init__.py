"""A page about a crawl for a browser on the same machine: how it stands, what failed, why, and its report."""
