"""What a run tells the outside: counters, traces, metrics. Telemetry never changes an outcome and never blocks.

The hot path is ``stats`` (plain numbers) and a hash per page; ``catalogue`` names the numbers; ``spans`` builds
traces after the fact. ``crawljob_telemetry`` publishes and sends both, from threads of its own.
OpenTelemetry is imported in those threads only, and not at all without an endpoint.
"""

from durable_crawler.telemetry.stats import Stats
from durable_crawler.telemetry.telemetry import Telemetry

__all__ = ["Stats", "Telemetry"]
