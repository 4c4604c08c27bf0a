"""How telemetry leaves a process, for the crawler and the operator alike: bounded, from threads of its own.

``metrics`` are plain numbers and the rows of a table that names them; ``prometheus`` and ``otlp_metrics`` publish such
a table, ``process`` has the rows of every process, ``environment`` reads OpenTelemetry's variables. ``span_queue`` is the bounded way of what becomes spans, ``finished`` builds them after the fact, ``exporters``
knows OTLP, and a ``sink`` sends one signal. What is counted and traced is each side's own affair.

OpenTelemetry is imported by ``exporters``, ``finished`` and ``otlp_metrics`` only: load these in a sink's thread.
"""
