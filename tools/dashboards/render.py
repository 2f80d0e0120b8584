"""Dashboards as Grafana's own types, and these as the JSON that it imports."""

import json
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from .panels import SOURCE, draw
from .parts import COLUMNS, Band, Dashboard, Row, Variable

_TAG = "tegrascope"
# Two of them are one band: bands are asked for in steps of at most this.
_BAND_STEP = "15s"


def render(dashboard: Dashboard) -> str:
    """Return a dashboard as the text of its file."""
    made = (
        builders.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags([_TAG, "jetson"])
        .timezone("browser")
        .refresh("10s")
        .time(dashboard.since, "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            builders.DashboardLink("tegrascope")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .keep_time(True)
            .include_vars(True)
        )
        .with_variable(
            builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
    )
    for variable in dashboard.variables:
        made.with_variable(_variable(variable))
    for band in dashboard.bands:
        made.annotation(_band(band))
    for panel in _laid_out(dashboard.rows):
        made.with_panel(panel)
    document = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    for listed, band in zip(document["annotations"].get("list", ()), dashboard.bands, strict=True):
        listed |= _band_words(band)
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _variable(variable: Variable) -> builders.QueryVariable:
    made = (
        builders.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(SOURCE)
        .query(variable.query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
        .multi(variable.is_many)
        .include_all(variable.is_many)
    )
    if variable.is_many:
        # Of many devices the list of all names would be longer than a query may be.
        every = models.VariableOption(selected=True, text="All", value="$__all")
        made.all_value(variable.every).current(every)
    return made


def _band(band: Band) -> builders.AnnotationQuery:
    made = builders.AnnotationQuery().name(band.name).datasource(SOURCE).enable(True)
    return made.icon_color(band.color).expr(band.expr)


def _band_words(band: Band) -> dict[str, str]:
    """Return what Grafana's Prometheus plugin reads of a band, and its general model lacks."""
    return {
        "step": _BAND_STEP,
        "titleFormat": band.title,
        "textFormat": band.text,
        "tagKeys": ",".join(band.tags),
    }


class _Placed:
    """A row's headline, which ``with_panel`` takes as it takes panels."""

    def __init__(self, row: models.RowPanel) -> None:
        self._row = row

    def build(self) -> models.RowPanel:
        return self._row


def _laid_out(rows: tuple[Row, ...]) -> Iterator[Any]:
    """Yield headlines and panels, numbered, from left to right and from top to bottom."""
    top, number = 0, 0
    for row in rows:
        number += 1
        place = models.GridPos(x=0, y=top, w=COLUMNS, h=1)
        yield _Placed(
            models.RowPanel(title=row.title, id_val=number, grid_pos=place, collapsed=False)
        )
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            number += 1
            place = models.GridPos(x=left, y=top, w=panel.width, h=panel.height)
            yield draw(panel).id(number).grid_pos(place)
            left, height = left + panel.width, max(height, panel.height)
        top += height
