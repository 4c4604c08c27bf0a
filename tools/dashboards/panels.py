"""The few kinds of panels that the dashboards are made of, each complete: title, how to read it, unit and queries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap as heatmaps
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.builders import stat as stats
from grafana_foundation_sdk.builders import timeseries as timelines
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

# Grafana's names of units.
COUNT, SECONDS, BYTES, SHARE = "short", "s", "bytes", "percentunit"
PAGES_PER_SECOND, REQUESTS_PER_SECOND, PER_SECOND, BYTES_PER_SECOND = "si: pages/s", "reqps", "cps", "binBps"

WIDTH = 24
"""Columns of Grafana's grid."""

_SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
Panel = timelines.Panel | stats.Panel | heatmaps.Panel


@dataclass(frozen=True)
class Query:
    """An expression, and the legend of its series: text with ``{{label}}``."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Row:
    """Panels beside each other below a heading, as wide as they share the grid."""

    title: str
    panels: Sequence[Panel]
    height: int = 8


def lines(title: str, reading: str, unit: str, *queries: Query, stacked: bool = False) -> timelines.Panel:
    """Lines over time; ``reading`` says how to read them."""
    legend = options.VizLegendOptions().show_legend(True).display_mode(common.LegendDisplayMode.LIST)
    tooltip = options.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    panel = timelines.Panel().title(title).description(reading).unit(unit).min(0)
    panel = panel.legend(legend.placement(common.LegendPlacement.BOTTOM)).tooltip(tooltip).datasource(_SOURCE)
    panel = panel.show_points(common.VisibilityMode.NEVER).fill_opacity(20 if stacked else 0)
    if stacked:
        panel = panel.stacking(options.StackingConfig().mode(common.StackingMode.NORMAL))
    return panel.targets(list(_targets(queries)))


def number(title: str, reading: str, unit: str, query: str) -> stats.Panel:
    """One number, the last one, with its course behind it."""
    panel = stats.Panel().title(title).description(reading).unit(unit).datasource(_SOURCE)
    reduced = options.ReduceDataOptions().calcs(["lastNotNull"])
    panel = panel.reduce_options(reduced).graph_mode(common.BigValueGraphMode.AREA)
    return panel.targets(list(_targets([Query(query)])))


def heatmap(title: str, reading: str, unit: str, buckets: str) -> heatmaps.Panel:
    """A histogram over time: ``buckets`` has a series for each ``le``."""
    panel = heatmaps.Panel().title(title).description(reading).datasource(_SOURCE)
    panel = panel.y_axis(heatmaps.YAxisConfig().unit(unit)).unit(unit)
    panel = panel.scale_distribution(options.ScaleDistributionConfig().type(common.ScaleDistribution.LINEAR))
    target = _target(Query(buckets, "{{le}}"), 0).format(PromQueryFormat.HEATMAP)
    return panel.targets([target])


def source() -> builders.DatasourceVariable:
    """The variable that says which Prometheus."""
    return builders.DatasourceVariable("datasource").label("Data source").type("prometheus")


def choice(name: str, label: str, query: str, *, many: bool = False) -> builders.QueryVariable:
    """A variable with the values that ``query`` finds; ``many``: any number of them, at first all."""
    variable = builders.QueryVariable(name).label(label).query(query).datasource(_SOURCE)
    variable = variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
    variable = variable.sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    if many:
        everything = dashboard.VariableOption(text="All", value="$__all", selected=True)
        variable = variable.multi(True).include_all(True).all_value(".*").current(everything)
    return variable


def render(
    uid: str,
    title: str,
    description: str,
    variables: Iterable[builders.DatasourceVariable | builders.QueryVariable],
    rows: Iterable[Row],
) -> str:
    """The whole dashboard as JSON; ids count from 1, in the order of the panels, so that links to one stay true."""
    made = builders.Dashboard(title).uid(uid).description(description).tags(["durable-crawler"])
    made = made.time("now-1h", "now").refresh("30s").timezone("browser").readonly()
    made = made.tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    for variable in variables:
        made = made.with_variable(variable)
    number_of = iter(range(1, 1000))
    for row in rows:
        made = made.with_row(builders.Row(row.title).id(next(number_of)))
        for panel in row.panels:
            made = made.with_panel(panel.id(next(number_of)).span(WIDTH // len(row.panels)).height(row.height))
    return _json(made.build())


def _targets(queries: Sequence[Query]) -> Iterable[prometheus.Dataquery]:
    return (_target(query, position) for position, query in enumerate(queries))


def _target(query: Query, position: int) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query.expression).ref_id(chr(ord("A") + position)).datasource(_SOURCE).range()
    return made.legend_format(query.legend) if query.legend else made


def _json(built: dashboard.Dashboard) -> str:
    plain: Any = json.loads(JSONEncoder().encode(built))
    return json.dumps(plain, indent=2, sort_keys=True) + "\n"
