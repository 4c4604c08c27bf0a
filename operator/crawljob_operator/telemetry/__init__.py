"""What the operator tells the outside: counters, gauges, and the spans of attempts and crawls.

``telemetry`` is the observer that the operator's parts talk to; ``stats`` are its numbers, ``catalogue`` names them,
``drift`` finds what the watches missed, ``ends`` says what becomes spans and ``spans`` builds them.
``crawljob_telemetry`` publishes and sends all of it. OpenTelemetry is not imported at all without an endpoint.
"""

from crawljob_operator.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
