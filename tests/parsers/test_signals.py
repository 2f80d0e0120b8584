"""Rows of telemetry signals: names of columns to rows and back."""

import pytest

from tegrascope.parsers import signals
from tegrascope.parsers.signals import COUNTED, SIGNALS, Signal


@pytest.mark.parametrize("row", SIGNALS, ids=lambda row: row.template)
def test_a_column_leads_back_to_its_row(row: Signal) -> None:
    label = {None: "", "core": "11", "gpc": "1"}.get(row.label, "devfreq-17000000.gpu")
    assert signals.split(row.column(label)) == (row, label)


@pytest.mark.parametrize(
    "column",
    ["", "dla", "dla.0", "dla.x.on", "dla.0.heat", "rails..instant_watts", "battery.BAT0.charge"],
)
def test_a_column_without_a_row_is_not_found(column: str) -> None:
    assert signals.split(column) is None


def test_rows_of_one_metric_share_its_labels_and_kind() -> None:
    shapes: dict[str, set[object]] = {}
    for row in SIGNALS:
        if row.family is not None:
            shape = (row.weight is COUNTED, row.label, tuple(row.fixed), row.kept)
            shapes.setdefault(row.family, set()).add(shape)
    assert {name for name, found in shapes.items() if len(found) > 1} == set()


def test_each_metric_has_one_help_text() -> None:
    helps = [row.family for row in SIGNALS if row.family is not None and row.help]
    assert sorted(helps) == sorted({row.family for row in SIGNALS if row.family is not None})
    assert not [row.template for row in SIGNALS if row.help and row.family is None]
