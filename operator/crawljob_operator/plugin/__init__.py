"""``kubectl crawl``: a user's own hands on a CrawlJob, with the user's own rights.

Nothing here runs in the operator; ``inside`` runs in the Job that reads a volume, and loads no Kubernetes client.
"""
