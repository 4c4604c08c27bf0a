"""The dashboards are what Grafana can show, and ask for metrics that there are."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families
from tests.support import grafana, promql
from tools.generate import CHART, ROOT

from crawljob.summary import Progress
from crawljob_operator.telemetry import catalogue as operators
from crawljob_operator.telemetry.stats import Stats as OperatorStats
from crawljob_telemetry import prometheus
from crawljob_telemetry.metrics import Metric
from durable_crawler.telemetry import catalogue as crawlers

CATALOGUE: tuple[Metric[Any], ...] = (*crawlers.CATALOGUE, *operators.CATALOGUE)
RULES = ROOT / CHART / "files/rules.yaml"
# Of every scrape, of histograms, and of the crawl: the PodMonitor's relabelling or the Collector's resource attributes.
COMMON_LABELS = {"job", "instance", "exported_job", "exported_instance", "le"}
COMMON_LABELS |= {"k8s_namespace_name", "crawljob_name", "crawljob_uid", "crawljob_attempt"}
GRID_COLUMNS = 24


def rules() -> list[dict[str, Any]]:
    """All alerts."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    return [*(shown.expression for shown in grafana.queries()), *(rule["expr"] for rule in rules())]


def from_a_collector(metric: Metric[Any]) -> Iterator[str]:
    """The names that a Collector's Prometheus exporter makes of an OTLP metric."""
    unit = {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")
    name = re.sub(r"\W", "_", metric.name) + unit
    match metric.kind:
        case "histogram":
            yield from (f"{name}{suffix}" for suffix in ("_bucket", "_sum", "_count"))
        case "counter":
            yield f"{name}_total"
        case "gauge" | "updowncounter":
            yield name


@pytest.fixture(params=grafana.PATHS, ids=lambda path: path.stem)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    path: Path = request.param
    return grafana.load(path)


def test_it_is_a_dashboard_by_the_types_of_grafana(dashboard: dict[str, Any]) -> None:
    register_default_plugins()
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    assert again == dashboard, "nothing in it that the types do not know"


def test_every_panel_says_what_it_shows(dashboard: dict[str, Any]) -> None:
    for panel in grafana.panels(dashboard):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0, panel["title"]
        assert all(target["legendFormat"] for target in panel["targets"] if len(panel["targets"]) > 1), panel["title"]


def test_ids_are_unique_and_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    assert 0 not in ids, "Grafana gives another one"
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert 0 <= at["x"] < at["x"] + at["w"] <= GRID_COLUMNS
        for cell in itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])):
            assert cell not in taken, f"{panel['title']} lies over {taken[cell]}"
            taken[cell] = panel["title"]


def test_every_variable_is_used_and_every_used_one_is_there(dashboard: dict[str, Any]) -> None:
    declared = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard)))
    assert used - {"__rate_interval", "__all"} == declared


def test_uids_differ() -> None:
    uids = [grafana.load(path)["uid"] for path in grafana.PATHS]
    assert len(set(uids)) == len(uids)


def test_every_metric_of_a_query_is_in_the_catalogue_under_the_names_of_both_ways() -> None:
    """Scraped from /metrics, and made of OTLP by a Collector."""
    asked = set().union(*map(promql.metrics, expressions()))
    sent = {name for metric in CATALOGUE for name in from_a_collector(metric)}
    assert asked - sent == set()
    assert {name.split("{")[0] for name in asked} == asked
    families = {metric.prometheus_name for metric in CATALOGUE}
    bare = {re.sub("_(bucket|sum|count)$", "", name) for name in asked}
    assert bare - families == set()


def test_the_operators_own_text_has_the_metrics_under_these_names() -> None:
    text = prometheus.render(operators.collect(OperatorStats()))
    shown = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    named = {name for metric in operators.CATALOGUE for name in from_a_collector(metric)}
    assert shown <= named
    assert "crawljob_operator_restarts_total" in shown


def test_every_label_of_a_query_or_legend_is_one_that_its_metrics_have() -> None:
    of = {name: set(metric.attributes) for metric in CATALOGUE for name in from_a_collector(metric)}
    for expression in expressions():
        attributes = {label.replace(".", "_") for name in promql.metrics(expression) for label in of[name]}
        assert promql.labels(expression) - COMMON_LABELS - attributes == set(), expression
    for shown in grafana.queries():
        legend = set(re.findall(r"\{\{(\w+)\}\}", shown.legend))
        assert legend <= promql.labels(shown.expression), f"{shown}: its legend names labels that are summed away"


def test_promtool_understands_every_query(promtool: Path, tmp_path: Path) -> None:
    values = {"namespace": "web", "crawl": "docs", "interval": "1m"}
    records = [
        {"record": f"panel:query:{number}", "expr": grafana.filled(shown.expression, **values)}
        for number, shown in enumerate(grafana.queries())
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": records}]}))
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ('sum by (le) (rate(a_bucket{x="}(", y=~"z"}[5m])) > 0', {'a_bucket{x="}(", y=~"z"}'}),
        ('a{x="1"} and on (k, l) topk by (k) (1, b)', {'a{x="1"}', "b"}),
        ('min (label_replace(a + b, "of", "found", "", "") or label_replace(c, "of", "d", "", "")) / 1e3', {*"abc"}),
    ],
)
def test_selectors_are_found(expression: str, found: set[str]) -> None:
    assert promql.selectors(expression) == found


def test_the_tables_are_not_empty() -> None:
    """Against a test that compares nothing with nothing."""
    assert len(list(grafana.queries())) > 50
    assert Progress().done == 0
