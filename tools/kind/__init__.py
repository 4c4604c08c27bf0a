"""``make kind``: a cluster on this machine with the operator, a Collector, a site and a crawl of it, to look at."""
