"""Boards that are slower than their like: a real Prometheus names them with their cause."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.monitoring.grafana import filled, labels_of, panels
from tests.monitoring.prometheus import Monitoring, Prometheus, needs_prometheus
from tools.benchmarks.slow_boards import (
    Board,
    filled_fleet,
    last_block,
    last_evaluation,
    make_boards,
    named,
    read_rules,
    series_of,
    stages,
)
from tools.dashboards.like import DASHBOARD
from tools.dashboards.render import render

HOURS = 8
CHOSEN = dict.fromkeys(("job", "instance", "workload"), ".*")


class Judged(NamedTuple):
    """A fleet of 60 boards in five groups, of which two are slow and one group was updated."""

    prometheus: Prometheus
    boards: list[Board]
    planted: list[Board]
    begin: int
    seconds: int


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    monitoring = Monitoring(tmp_path_factory.mktemp("slow"))
    boards, planted = make_boards(60, 5, ("cooling", "power mode"), seed=2)
    begin, seconds = last_block(HOURS)
    try:
        server, *_ = filled_fleet(monitoring, boards, begin, seconds)
        yield Judged(server, boards, planted, begin, seconds)
    finally:
        monitoring.stop()


def test_a_board_has_at_most_twelve_series_that_the_rules_read():
    boards, _ = make_boards(60, 5, ("fallback",), seed=2)
    read = " ".join(rule["expr"] for rule in read_rules())
    for board in boards:
        series = [one for one in series_of(board, 0, 7200) if not board.group.updated]
        assert len(series) <= 12
        assert all(one.name in read for one in series)


def test_rules_are_evaluated_after_those_that_they_read():
    """The parts together are all rules, and no part reads what it records itself."""
    parts = stages(read_rules())
    assert sum(map(len, parts)) == len(read_rules())
    assert [len(part) for part in parts[-2:]] == [3, 1]  # figures that differ, then the cause
    assert parts[-1][0]["record"].endswith(":slower_cause")


def test_the_page_sends_what_the_rules_read():
    """The relabelling for a store keeps each metric of the rules."""
    page = (Path(__file__).parents[2] / "docs/fleet.md").read_text(encoding="utf-8")
    (kept,) = re.findall(r"regex: (tegra_info\|.*)$", page, re.MULTILINE)
    recorded = {rule["record"] for rule in read_rules()}
    for rule in read_rules():
        text = re.sub('"[^"]*"', "", rule["expr"])
        for name in set(re.findall(r"(?:\w+:)?tegra_\w+(?::\w+)?", text)) - recorded:
            assert re.fullmatch(kept, name), name


@needs_prometheus
def test_slow_boards_are_named_with_their_cause_and_no_others(judged):
    truth = {board.name: board.cause for board in judged.planted}
    assert named(judged.prometheus, judged.begin, judged.seconds) == truth


@needs_prometheus
def test_boards_that_only_look_different_are_not_named(judged):
    """Some have more swap, more heat or a lower clock than their like, at the same latency."""
    odd = {board.name for board in judged.boards if board.effect.latency == (1.0, 1.0)}
    deviates = "instance_like:tegra_inferences:figure_deviation{figure!='latency'} > 5"
    at = last_evaluation(judged.prometheus, judged.begin + judged.seconds)
    found = {one["metric"]["instance"] for one in judged.prometheus.query(deviates, at)}
    assert found & odd


@needs_prometheus
def test_every_panel_of_the_dashboard_answers(judged):
    """Each query has an answer with the labels that are shown; the slow boards are on top."""
    board = json.loads(render(DASHBOARD))
    end = last_evaluation(judged.prometheus, judged.begin + judged.seconds)
    answers = {}
    for panel in panels(board):
        for target in panel["targets"]:
            expr = filled(target["expr"].replace("$__range", f"{judged.seconds - 3600}s"), CHOSEN)
            found = judged.prometheus.query(expr, end)
            assert found, (panel["title"], expr)
            assert labels_of(target.get("legendFormat", "")) - {"devices"} <= set(
                found[0]["metric"]
            )
            answers[panel["title"], target["refId"]] = found
        for one in panel.get("transformations", ()):
            if one["id"] == "organize":
                labels = set().union(
                    *(
                        row["metric"]
                        for (title, _), rows in answers.items()
                        for row in rows
                        if title == panel["title"]
                    )
                )
                shown = {
                    name for name in one["options"]["renameByName"] if not name.startswith("Value")
                }
                assert shown <= labels, panel["title"]
    slow = {
        one["metric"]["instance"]: one["metric"]["figure"]
        for one in answers["Slow boards and their causes", "C"]
    }
    assert slow == {board.name: board.cause for board in judged.planted}
    (count,) = answers["Slow boards", "A"]
    assert float(count["value"][1]) == len(judged.planted)
    (update,) = answers["Changes by an update", "B"]
    assert float(update["value"][1]) == pytest.approx(0.92, abs=0.02)
    (boards,) = answers["Changes by an update", "A"]
    updated = [board for board in judged.boards if board.group.updated]
    assert float(boards["value"][1]) == len(updated)


@needs_prometheus
def test_boards_with_too_few_alike_are_counted_as_not_judged(monitoring):
    """Three in each of two power modes: six of a workload, but no five to differ from."""
    boards, planted = make_boards(60, 10, ("cooling", "power mode"), seed=2)
    begin, seconds = last_block(HOURS)
    server, *_ = filled_fleet(monitoring, boards, begin, seconds)
    end = last_evaluation(server, begin + seconds)
    few = {board.name for board in boards if board.group.labels["module"] == "p3708-0000"}
    shown = {
        panel["title"]: panel["targets"][0]["expr"]
        for panel in panels(json.loads(render(DASHBOARD)))
    }
    assert server.value(filled(shown["Boards not judged"], CHOSEN), end) == len(few) == 6
    assert server.value(filled(shown["Judged boards"], CHOSEN), end) == 54
    bars = server.query(filled(shown["Latency against like boards"], CHOSEN), end)
    named_bars = {one["metric"]["instance"] for one in bars}
    assert not named_bars & few
    assert {board.name for board in planted} <= named_bars
