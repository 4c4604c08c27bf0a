"""The operator: watches CrawlJobs and gives each one a volume and exactly one crawler Pod, until its crawl is done.

The way of one reconcile: ``handlers`` (kopf wakes us) → ``workqueue`` (one at a time per CrawlJob) → ``reconcile``
(reads live, through ``kube``) → ``decide`` (pure) → ``apply`` (status first, then actions).
"""
