"""The Grafana dashboards of the chart, as code: ``crawl`` shows one CrawlJob, ``fleet`` all of them and the operator.

``tools.generate`` writes them to charts/durable-crawler/files/dashboards. They need Grafana 10.1 or newer, and work
with metrics of either way: scraped from ``/metrics`` by the chart's PodMonitor, or sent to a Collector whose Prometheus
exporter has ``resource_to_telemetry_conversion`` on.
"""
