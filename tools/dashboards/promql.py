"""PromQL that the dashboards share: which crawl, which attempt of it, and what a histogram says.

Each Pod of a crawl is an attempt with series of its own, and a Collector shows those of a Pod that has ended for
minutes. So a gauge is read from the newest attempt, and counters are summed over all of them.
"""

from __future__ import annotations

RATE = "$__rate_interval"
"""Grafana's: four scrape intervals, or the resolution of the panel where that is more."""

CRAWL = ("k8s_namespace_name", "crawljob_name")
"""The labels that name a crawl; ``crawljob_uid`` and ``crawljob_attempt`` tell its Pods apart."""

_TARGET = "job, instance, exported_job, exported_instance"
"""The labels that name a process, scraped directly or through a Collector, whose own then come first."""


def by(*labels: str) -> str:
    """The labels as PromQL lists them."""
    return ", ".join(labels)


def newest(metric: str, where: str) -> str:
    """The gauge of the newest attempt of each crawl that ``where``, a list of label matchers, selects."""
    attempt = f"topk by ({by(*CRAWL)}) (1, crawler_attempt{{{where}}})"
    return f"{metric}{{{where}}} and on ({by(*CRAWL, 'crawljob_uid', 'crawljob_attempt')}) {attempt}"


def rate(metric: str, where: str = "", *labels: str, window: str = RATE) -> str:
    """How fast a counter grows per second, summed over everything but ``labels``."""
    selector = f"{metric}{{{where}}}" if where else metric
    grouped = f"sum by ({by(*labels)}) " if labels else "sum "
    return f"{grouped}(rate({selector}[{window}]))"


def quantile(share: float, histogram: str, where: str = "", *labels: str) -> str:
    """The value below which this share of a histogram's observations lies, ``labels`` kept apart."""
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', where, 'le', *labels)})"


def mean(histogram: str, where: str = "") -> str:
    """The mean of a histogram's observations."""
    return f"{rate(f'{histogram}_sum', where)} / {rate(f'{histogram}_count', where)}"


def of_the_operator(metric: str) -> str:
    """A metric that every process has, of those that are operators."""
    return f"{metric} and on ({_TARGET}) crawljob_operator_build_info"
