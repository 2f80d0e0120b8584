"""Every query of every dashboard and rule, asked of a real Prometheus that scrapes real daemons."""

import json
import math
import time
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring.fleet import Fleet, fleet
from tests.monitoring.grafana import Board, Chosen, asked, filled, labels_of, panels
from tests.monitoring.prometheus import needs_prometheus
from tools.dashboards.catalog import DASHBOARDS
from tools.dashboards.parts import Dashboard

ROOT = Path(__file__).parents[2]
SPAN_SECONDS = 180
Series = list[dict[str, Any]]

# Five boards that are alike are in test_slow_boards.py.
LIVE = [one for one in DASHBOARDS if one.uid != "tegrascope-like"]
each_dashboard = pytest.mark.parametrize("dashboard", LIVE, ids=lambda one: one.uid)
pytestmark = needs_prometheus

# Rules that record nothing in a fleet that is a minute old, by the end of their name.
SILENT_RULES = {
    ":median7d": "needs a day of points",
    ":slower": "needs the median of a week",
    ":costlier": "needs the median of a week",
    ":bypassed": "every run on a DLA used it",
    ":figure_spread": "less than five boards are alike",
    ":figure_deviation": "less than five boards are alike",
    ":slower_figure": "less than five boards are alike",
    ":slower_cause": "less than five boards are alike",
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Fleet]":
    """A fleet that has done everything once."""
    with fleet(tmp_path_factory.mktemp("fleet")) as started:
        yield started


def read(dashboard: Dashboard) -> Board:
    path = ROOT / "grafana/dashboards" / dashboard.file
    return dict(json.loads(path.read_text(encoding="utf-8")))


def variables(board: Board) -> dict[str, Mapping[str, Any]]:
    listed = board["templating"]["list"]
    return {one["name"]: one for one in listed if one["type"] == "query"}


def everything(board: Board) -> dict[str, str | list[str]]:
    """What is chosen when a dashboard is opened, but for a choice of one."""
    found = variables(board).items()
    return {name: one["allValue"] if one["includeAll"] else ".*" for name, one in found}


def values(seen: Fleet, variable: Mapping[str, Any], chosen: Chosen) -> list[str]:
    selector, label = asked(variable)
    match = {} if selector is None else {"match[]": filled(selector, chosen)}
    return list(seen.prometheus.ask(f"label/{label}/values", **match))


def choices(seen: Fleet, board: Board) -> Iterator[dict[str, str | list[str]]]:
    """Yield all at once where that can be chosen, then every device alone, then two by name."""
    alone = variables(board)["instance"]
    devices = values(seen, alone, everything(board))
    if alone["multi"]:
        yield everything(board)
        yield everything(board) | {"instance": devices}
    for device in devices:
        yield everything(board) | {"instance": [device] if alone["multi"] else device}


def is_of(device: str, chosen: Chosen) -> bool:
    """Say whether a device is among those that are chosen."""
    given = chosen["instance"]
    return given in (".*", device) or (isinstance(given, list) and device in given)


def answer(seen: Fleet, expr: str, is_instant: bool) -> Series:
    """Return what Prometheus answers; that it refuses is a failure that tells the query."""
    now = time.time()
    span = {"start": str(now - SPAN_SECONDS), "end": str(now), "step": "5"}
    try:
        if is_instant:
            return list(seen.prometheus.query(expr, now))
        return list(seen.prometheus.ask("query_range", query=expr, **span)["result"])
    except OSError as error:
        told = error.read().decode() if hasattr(error, "read") else ""
        raise AssertionError(f"{expr}: {error} {told}") from None


def numbers(series: Series) -> list[float]:
    points = [one.get("values", [one.get("value")]) for one in series]
    return [float(value) for _, value in chain(*points)]


def says_something(series: Series) -> bool:
    return any(not math.isnan(value) for value in numbers(series))


def reasons(dashboard: Dashboard) -> dict[tuple[str, int], str]:
    """Return why a query may answer nothing, by the title of its panel and its place in it."""
    return {
        (panel.title, at): query.empty
        for row in dashboard.rows
        for panel in row.panels
        for at, query in enumerate(panel.queries)
    }


@each_dashboard
def test_every_panel_answers(seen, dashboard):
    """No query errs on any choice, and each has an answer with the labels that its legend names.

    Without a reason to be empty it has one of the board that had a DLA and a GPU run, too.
    """
    board, empty = read(dashboard), reasons(dashboard)
    labels: dict[tuple[str, int], set[str]] = {}
    silent = {}
    for chosen in choices(seen, board):
        for panel in panels(board):
            for at, target in enumerate(panel["targets"]):
                expr = filled(target["expr"], chosen)
                found = answer(seen, expr, target.get("instant", False))
                where = (panel["title"], at)
                if says_something(found):
                    named = labels.setdefault(where, set())
                    named.update(*(one["metric"] for one in found))
                elif is_of(seen.simulated, chosen) and not empty[where]:
                    silent[where] = expr
    assert silent == {}
    assert set(empty) - set(labels) == set()
    for panel in panels(board):
        for at, target in enumerate(panel["targets"]):
            named = labels_of(target.get("legendFormat", ""))
            assert named <= labels[panel["title"], at], panel["title"]


# Panels that a simulated board leaves empty.
NOT_SIMULATED = {
    "DLA tasks": "the DLA trace is off by default",
    "DLA by process": "the DLA trace is off by default",
    "GPU load by process": "only on a PC, NVML is asked for processes",
    "GPU memory by process": "only on a Thor, NVML is read beside tegrastats",
    "Battery": "the simulated boards have none",
    "Quality flags of these runs": "says that no run has a flag, where none has",
}


@each_dashboard
def test_the_demo_fills_the_board(seen, dashboard):
    """Whoever starts the demo first sees no empty panel: fan, trips and powered time are there."""
    board = read(dashboard)
    chosen = everything(board) | {"instance": seen.simulated}
    empty = {
        panel["title"]
        for panel in panels(board)
        if dashboard.uid in ("tegrascope-device", "tegrascope-dla-or-gpu")
        and not any(
            says_something(answer(seen, filled(one["expr"], chosen), one.get("instant", False)))
            for one in panel["targets"]
        )
    }
    assert empty <= set(NOT_SIMULATED)


def test_the_demo_has_a_release_and_a_mode(seen):
    """A simulated board has the labels of one, and each says that it is simulated."""
    (info,) = seen.prometheus.query(f'tegra_info{{instance="{seen.simulated}"}}')
    names = ("board", "l4t", "jetpack", "power_mode", "simulated")
    told = {name: info["metric"][name] for name in names}
    assert told == {"board": "agx-orin-64gb", "l4t": "36.4.3", "jetpack": "6.2",
                    "power_mode": "MAXN", "simulated": "true"}  # fmt: skip
    found = seen.prometheus.query(f'{{instance="{seen.simulated}",__name__=~"tegra_.+"}}')
    assert all(one["metric"]["simulated"] == "true" for one in found)


@each_dashboard
def test_every_table_has_its_columns(seen, dashboard):
    """Columns that are shown are given, and what is merged into a row is one of each."""
    board = read(dashboard)
    for panel in (one for one in panels(board) if one["type"] == "table"):
        targets = panel["targets"]
        found = [answer(seen, filled(one["expr"], everything(board)), True) for one in targets]
        given, keys = {"Time"}, None
        for target, series in zip(targets, found, strict=True):
            assert series, (panel["title"], target["expr"])
            labels = set().union(*(one["metric"] for one in series))
            keys = labels if keys is None else keys & labels
            given |= labels | {f"Value #{target['refId']}" if len(targets) > 1 else "Value"}
        for series in found if len(found) > 1 else ():
            rows = [tuple(one["metric"].get(key) for key in sorted(keys or ())) for one in series]
            assert len(set(rows)) == len(rows), panel["title"]
        (organize,) = (one for one in panel["transformations"] if one["id"] == "organize")
        options = organize["options"]
        assert set(options["renameByName"]) | set(options["excludeByName"]) == given
        assert set(options["indexByName"]) == set(options["renameByName"])


@each_dashboard
def test_every_variable_has_values(seen, dashboard):
    """Whatever can be chosen above a dashboard has something to choose."""
    board = read(dashboard)
    for variable in variables(board).values():
        assert values(seen, variable, everything(board)), variable["name"]


@each_dashboard
def test_every_band_is_drawn(seen, dashboard):
    """Runs and throttling are marked, each with the words that its labels give."""
    board = read(dashboard)
    listed = board["annotations"].get("list", [])
    for band, known in zip(listed, dashboard.bands, strict=True):
        found = answer(seen, filled(band["expr"], everything(board)), False)
        assert says_something(found) or known.empty, band["name"]
        for series in found:
            named = labels_of(band["titleFormat"] + band["textFormat"])
            assert named | set(band["tagKeys"].split(",")) <= set(series["metric"])


def test_rules_are_evaluated_and_record_something(seen):
    """No rule errs, and those that record have recorded, unless there is a reason."""
    groups = seen.prometheus.ask("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    silent = {name for name in recorded if not seen.prometheus.query(f'{{__name__="{name}"}}')}
    assert {name for name in silent if not name.endswith(tuple(SILENT_RULES))} == set()
    assert [end for end in SILENT_RULES if not any(name.endswith(end) for name in silent)] == []


def test_exemplars_of_the_panels_lead_to_runs(seen):
    """A dot on a panel of latency bears the run that it is of, and where that run's device is."""
    for dashboard in DASHBOARDS:
        board = read(dashboard)
        targets = [one for panel in panels(board) for one in panel["targets"]]
        for expr in (one["expr"] for one in targets if one.get("exemplar")):
            now = time.time()
            found = seen.prometheus.ask(
                "query_exemplars",
                query=filled(expr, everything(board)),
                start=str(now - SPAN_SECONDS),
                end=str(now),
            )
            runs = {one["labels"]["run_id"] for series in found for one in series["exemplars"]}
            assert runs & seen.run_ids
            assert all("instance" in series["seriesLabels"] for series in found)


def test_the_answer_is_there(seen):
    """The question of the second dashboard is answered for the model that ran on both."""
    (board,) = (read(one) for one in DASHBOARDS if one.uid == "tegrascope-dla-or-gpu")
    panel = next(panels(board))
    assert panel["title"] == "DLA or GPU?"
    (table,) = (one for one in DASHBOARDS if one.uid == "tegrascope-dla-or-gpu")
    (verdict,) = (one for one in table.rows[0].panels[0].columns if one.title == "Verdict (gross)")
    target = next(one for one in panel["targets"] if one["refId"] == verdict.source)
    found = answer(seen, filled(target["expr"], everything(board)), True)
    words = {str(word.value): word.text for word in verdict.words}
    told = {
        (one["metric"]["instance"], one["metric"]["model"]): words[f"{float(one['value'][1]):g}"]
        for one in found
    }
    assert told[seen.simulated, "resnet50"] != "DLA was not used"
    assert (seen.equipped, "builtin:mobilenet") in told
