"""Panels as Grafana's own types: each kind has its dress, the same on every dashboard."""

import re
from collections.abc import Callable
from string import ascii_uppercase
from typing import Any

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heat
from grafana_foundation_sdk.models import prometheus as promql

from .parts import GREEN, INFERENCES, NEUTRAL, Column, Panel, Query, Step, Word

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""The data source that is chosen above the dashboard."""

_LOWEST = -1e9
# The least height of an axis from 0 on, so that a flat line of zeros does not have one up to 100.
_SOFT = {"s": 0.001, "joule": 0.001, "percentunit": 0.01}
_GROUPED = re.compile(r"^[^(]*by \((.*?)\)")
_KINDS: dict[str, type[Any]] = {
    "stat": stat.Panel,
    "timeseries": timeseries.Panel,
    "table": table.Panel,
    "heatmap": heatmap.Panel,
    "timeline": statetimeline.Panel,
    "bars": bargauge.Panel,
}


def draw(panel: Panel) -> Any:
    """Return Grafana's builder of a panel, without its number and place."""
    made = (
        _KINDS[panel.kind]()
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
    )
    for letter, query in zip(ascii_uppercase, panel.queries, strict=False):
        made.with_target(_target(panel, letter, query))
    if panel.low is not None:
        made.min(panel.low)
    if panel.high is not None:
        made.max(panel.high)
    if panel.words:
        made.mappings(_mappings(panel.words))
    made.thresholds(_thresholds(panel.steps or (Step(None, GREEN),)))
    reasons = dict.fromkeys(query.empty for query in panel.queries)
    # In a table it would also fill single cells.
    if all(reasons) and panel.kind != "table":
        made.no_value(f"No data: {'; '.join(reasons)}")
    _DRESS[panel.kind](made, panel)
    return made


def _target(panel: Panel, letter: str, query: Query) -> prometheus.Dataquery:
    made = prometheus.Dataquery().ref_id(letter).datasource(SOURCE).expr(query.expr)
    made.editor_mode(promql.QueryEditorMode.CODE)
    if panel.kind == "table":
        return made.format(promql.PromQueryFormat.TABLE).instant()
    made.legend_format(query.legend)
    if panel.kind in ("stat", "bars"):
        return made.instant()
    if panel.kind == "heatmap":
        made.format(promql.PromQueryFormat.HEATMAP)
    return made.range().exemplar(query.exemplars)


def _mappings(words: tuple[Word, ...]) -> list[models.ValueMapping]:
    return [
        models.ValueMap(
            {
                str(word.value): models.ValueMappingResult(
                    text=word.text, color=word.color, index=at
                )
                for at, word in enumerate(words)
            }
        )
    ]


def _thresholds(steps: tuple[Step, ...]) -> builders.ThresholdsConfig:
    """Return the steps above a neutral one: Grafana gives its colour to what is absent."""
    made = [models.Threshold(value=None, color=NEUTRAL)]
    for step in steps:
        value = _LOWEST if step.value is None else step.value
        made.append(models.Threshold(value=value, color=step.color))
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def _dress_stat(made: stat.Panel, panel: Panel) -> None:
    many_series = any("{{" in query.legend for query in panel.queries)
    text = shapes.BigValueTextMode.VALUE_AND_NAME if many_series else shapes.BigValueTextMode.VALUE
    made.text_mode(shapes.BigValueTextMode.NAME if panel.shows_name else text)
    made.reduce_options(_last()).graph_mode(shapes.BigValueGraphMode.NONE)
    is_plain = not (panel.words or panel.steps)
    made.color_mode(
        shapes.BigValueColorMode.NONE if is_plain else shapes.BigValueColorMode.BACKGROUND
    )
    made.no_value("not known")


def _dress_bars(made: bargauge.Panel, _: Panel) -> None:
    made.reduce_options(_last()).orientation(shapes.VizOrientation.HORIZONTAL)
    made.display_mode(shapes.BarGaugeDisplayMode.BASIC)


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(shapes.LegendDisplayMode.LIST)
        .placement(shapes.LegendPlacement.BOTTOM)
        .show_legend(True)
    )


def _tooltip() -> common.VizTooltipOptions:
    mode, order = shapes.TooltipDisplayMode.MULTI, shapes.SortOrder.DESCENDING
    return common.VizTooltipOptions().mode(mode).sort(order)


def _dress_timeseries(made: timeseries.Panel, panel: Panel) -> None:
    made.legend(_legend()).tooltip(_tooltip()).show_points(shapes.VisibilityMode.NEVER)
    made.fill_opacity(50 if panel.is_stacked else 8).line_width(1)
    made.color_scheme(builders.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC))
    if panel.low == 0 and panel.high is None:
        made.axis_soft_max(_SOFT.get(panel.unit, 1))
        if panel.unit == "short":
            made.decimals(0)
    if panel.between:
        upper, lower = panel.between
        properties = [models.DynamicConfigValue(id_val="custom.fillBelowTo", value=lower)]
        made.override_by_name(upper, properties)
    for pattern, color in panel.colors:
        fixed = {"mode": "fixed", "fixedColor": color}
        properties = [models.DynamicConfigValue(id_val="color", value=fixed)]
        made.override_by_regexp(pattern, properties)
    if panel.is_stacked:
        made.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A"))
    if panel.apart:
        dashed = {"fill": "dash", "dash": [6, 6]}
        properties = [
            models.DynamicConfigValue(id_val="custom.lineStyle", value=dashed),
            models.DynamicConfigValue(id_val="custom.fillOpacity", value=0),
        ]
        if panel.is_stacked:
            alone = {"mode": "none", "group": "A"}
            properties.append(models.DynamicConfigValue(id_val="custom.stacking", value=alone))
        made.override_by_regexp(panel.apart, properties)


def _dress_timeline(made: statetimeline.Panel, _: Panel) -> None:
    made.legend(_legend()).tooltip(_tooltip()).show_value(shapes.VisibilityMode.NEVER)
    made.row_height(0.8).fill_opacity(80)


def _dress_heatmap(made: heatmap.Panel, panel: Panel) -> None:
    linear = common.ScaleDistributionConfig().type(shapes.ScaleDistribution.LINEAR)
    made.scale_distribution(linear).calculate(False).y_axis(heatmap.YAxisConfig().unit(panel.unit))
    made.color(
        heatmap.HeatmapColorOptions()
        .mode(heat.HeatmapColorMode.SCHEME)
        .scheme("Turbo")
        .scale(heat.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
    )
    made.cell_values(heatmap.CellValues().unit(INFERENCES)).exemplars_color("rgba(255,255,255,0.8)")
    made.show_legend().mode(shapes.TooltipDisplayMode.SINGLE).show_y_histogram()


def _dress_table(made: table.Panel, panel: Panel) -> None:
    letters = ascii_uppercase[: len(panel.queries)]
    names = {letter: f"Value #{letter}" if len(letters) > 1 else "Value" for letter in letters}
    sources = [names.get(column.source, column.source) for column in panel.columns]
    given = {"Time", *names.values(), *_labels(panel.queries)}
    organized = {
        "excludeByName": dict.fromkeys(sorted(given.difference(sources)), True),
        "indexByName": {name: at for at, name in enumerate(sources)},
        "renameByName": {
            name: column.title for name, column in zip(sources, panel.columns, strict=True)
        },
    }
    made.align(shapes.FieldTextAlignment.AUTO).transformations(
        [
            models.DataTransformerConfig(id_val="merge", options={}),
            models.DataTransformerConfig(id_val="organize", options=organized),
        ]
    )
    for column in panel.columns:
        made.override_by_name(column.title, _cell(column))
    # A table of five columns fits into half of a laptop's screen.
    made.min_width(60)
    made.cell_height(shapes.TableCellHeight.LG if panel.is_large else shapes.TableCellHeight.SM)
    if panel.sort:
        made.sort_by(
            [
                common.TableSortByFieldState()
                .display_name(title.removeprefix("-"))
                .desc(title.startswith("-"))
                for title in panel.sort
            ]
        )


def _labels(queries: tuple[Query, ...]) -> set[str]:
    """Return the labels that the queries of a table are grouped by, outermost."""
    found = [_GROUPED.search(query.expr) for query in queries]
    return {name for one in found if one for name in one[1].split(", ")}


def _cell(column: Column) -> list[models.DynamicConfigValue]:
    properties = [models.DynamicConfigValue(id_val="unit", value=column.unit or "string")]
    if column.words:
        properties.append(
            models.DynamicConfigValue(id_val="mappings", value=_mappings(column.words))
        )
    if column.steps:
        steps = _thresholds(column.steps).build()
        properties.append(models.DynamicConfigValue(id_val="thresholds", value=steps))
    if column.words or column.steps:
        colored = {"type": "color-background", "mode": "basic"}
        properties.append(models.DynamicConfigValue(id_val="custom.cellOptions", value=colored))
    if column.link:
        link = {
            "title": f"Open {column.title.lower()}",
            "url": column.link,
            "targetBlank": column.link.startswith("http:"),
        }
        properties.append(models.DynamicConfigValue(id_val="links", value=[link]))
    if column.width:
        properties.append(models.DynamicConfigValue(id_val="custom.width", value=column.width))
    return properties


_DRESS: dict[str, Callable[[Any, Panel], None]] = {
    "stat": _dress_stat,
    "heatmap": _dress_heatmap,
    "timeseries": _dress_timeseries,
    "table": _dress_table,
    "timeline": _dress_timeline,
    "bars": _dress_bars,
}
