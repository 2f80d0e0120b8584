"""Dashboards are made in one place, and their answer to the question is right."""

import json
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.grafana import filled
from tools.dashboards import device, verdict
from tools.dashboards.catalog import DASHBOARDS
from tools.dashboards.parts import Dashboard, Panel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
ALL = {"job": ".*", "instance": ".*", "model": ".*", "workload": ".*"}
# What Grafana's Prometheus plugin reads of an annotation; the library has the general part alone.
OF_THE_PLUGIN = {"step", "titleFormat", "textFormat", "tagKeys"}

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.uid)


def sdk(module: str) -> Any:
    return pytest.importorskip(
        f"grafana_foundation_sdk.{module}", reason="the library needs Python 3.11"
    )


def panels(dashboard: Dashboard) -> "list[Panel]":
    return [panel for row in dashboard.rows for panel in row.panels]


@each_dashboard
def test_file_is_what_make_dashboards_writes(dashboard):
    """Nobody edits what the next release would write over."""
    sdk("cog")
    from tools.dashboards.render import render

    path = ROOT / "grafana/dashboards" / dashboard.file
    assert path.read_text(encoding="utf-8") == render(dashboard), "run: make dashboards"


@each_dashboard
def test_grafana_knows_every_key(dashboard):
    """Read through Grafana's own types and written again, nothing is lost and nothing comes to."""
    types, encoder = sdk("models.dashboard"), sdk("cog.encoder")
    sdk("cog.plugins").register_default_plugins()
    path = ROOT / "grafana/dashboards" / dashboard.file
    written = json.loads(path.read_text(encoding="utf-8"))
    again = json.loads(json.dumps(types.Dashboard.from_json(written), cls=encoder.JSONEncoder))
    for band in written["annotations"].get("list", []):
        for key in OF_THE_PLUGIN:
            del band[key]
    assert again == written


def test_every_unit_is_known():
    """A unit that Grafana does not know is printed behind the number as it stands."""
    units = sdk("models.units")
    known = {value for value in vars(units).values() if isinstance(value, str)}
    used = {panel.unit for dashboard in DASHBOARDS for panel in panels(dashboard)}
    used |= {
        column.unit or "string"
        for dashboard in DASHBOARDS
        for panel in panels(dashboard)
        for column in panel.columns
    }
    assert used - known == set()


@each_dashboard
def test_lines_of_the_grid_are_full(dashboard):
    """Panels of one line are equally high, so that nothing hangs in the air."""
    for row in dashboard.rows:
        left, height = 0, 0
        for panel in row.panels:
            left = 0 if left + panel.width > 24 else left
            assert left == 0 or panel.height == height, panel.title
            left, height = left + panel.width, panel.height


@each_dashboard
def test_shown_columns_have_a_source(dashboard):
    """A table's column is a label or a query of that table, and only a table has columns."""
    for panel in panels(dashboard):
        assert bool(panel.columns) == (panel.kind == "table")
        letters = "ABCDEFGHIJ"[: len(panel.queries)]
        for column in panel.columns:
            assert column.source in letters or column.source[0].islower(), panel.title


def test_stacked_rails_count_nothing_twice():
    """No rail of the stack holds another one of it, on any board that is known."""
    (power,) = (panel for panel in device.POWER.panels if panel.is_stacked)
    (left_out,) = re.findall(r'rail!~"([^"]*)"', power.queries[0].expr)
    boards = tomllib.loads((ROOT / "collectors/board/boards.toml").read_text(encoding="utf-8"))[
        "board"
    ]
    for board in boards:
        for inside, why in board.get("excluded", {}).items():
            holder = why.rpartition(" ")[2]
            drawn = [rail for rail in (inside, holder) if not re.fullmatch(left_out, rail)]
            assert len(drawn) < 2, (board["name"], inside, holder)


class Bench:
    """Last good runs of a model on two devices, a board for each case."""

    def __init__(self) -> None:
        self.series: list[dict[str, str]] = []

    def add(self, metric: str, case: str, device: str, value: float, **labels: str) -> None:
        """Say one thing of one workload."""
        named = {"job": "j", "instance": case, "workload": f"w-{device}", "device": device}
        text = ",".join(f'{key}="{value}"' for key, value in {**named, **labels}.items())
        self.series.append({"series": f"{metric}{{{text}}}", "values": f"{value}x5"})

    def run(
        self,
        case: str,
        device: str,
        joules: float | None,
        seconds: float,
        gpu: float,
        **labels: str,
    ) -> None:
        """Say what a run was like."""
        last = "tegra_inference_last_run"
        batch = {"batch": "1", **labels}
        self.add("tegra_inference_workload_info", case, device, 1, model="m", **batch)
        if joules is not None:
            name = f"{last}_energy_joules_per_inference"
            self.add(name, case, device, joules, kind="gross")
            self.add(name, case, device, joules / 3, kind="net")
        self.add(f"{last}_latency_seconds", case, device, seconds, quantile="0.5")
        self.add(f"{last}_latency_seconds", case, device, 9 * seconds, quantile="0.99")
        self.add(f"{last}_gpu_utilization_ratio", case, device, gpu)

    def asks(self, tmp_path: Path, expr: str, expected: dict[str, float]) -> None:
        """Let promtool hold a query against what it should answer, by case."""
        samples = [
            {"labels": f'{{job="j",instance="{case}",model="m",batch="1"}}', "value": value}
            for case, value in expected.items()
        ]
        asked = {"expr": filled(expr, ALL), "eval_time": "1m", "exp_samples": samples}
        test = {"interval": "1m", "input_series": self.series, "promql_expr_test": [asked]}
        file = tmp_path / "test.yml"
        file.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}), encoding="utf-8")
        told = subprocess.run(
            ["promtool", "test", "rules", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert told.returncode == 0, told.stdout


needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed: apt install prometheus"
)


def answered(title: str) -> str:
    (panel,) = (one for one in verdict.ANSWER.panels if one.title == title)
    return panel.queries[0].expr


@needs_promtool
def test_the_answer_is_right(tmp_path):
    """Less, even or more energy; faster, as fast or slower: each has its own answer."""
    bench, expected = Bench(), {}
    sides = {2: 0.5, 1: 1.02, 0: 2.0}  # what the DLA takes, as a share of the GPU's
    for (energy, joules), (speed, seconds) in product(sides.items(), sides.items()):
        case = f"case-{energy}-{speed}"
        bench.run(case, "gpu", 0.2, 0.01, 0.9)
        bench.run(case, "dla0", 0.2 * joules, 0.01 * seconds, 0.1)
        expected[case] = 3.0 * energy + speed
    # Energy of one side is withheld, so the answer is of latency alone.
    bench.run("short", "gpu", None, 0.01, 0.9)
    bench.run("short", "dla0", 0.1, 0.03, 0.9)
    expected["short"] = 10.0
    # The DLA did nothing, so its figures are of something else.
    bench.run("unused", "gpu", 0.2, 0.01, 0.9)
    bench.run("unused", "dla0", 0.1, 0.001, 0.9)
    bench.add("tegra_inference_quality_flag", "unused", "dla0", 1, flag="dla_not_used")
    expected["unused"] = -1.0
    # Of two cores the better one counts, and of other batches or devices nothing does.
    bench.run("two", "gpu", 0.2, 0.01, 0.9)
    bench.run("two", "dla0", 0.8, 0.08, 0.9)
    bench.run("two", "dla1", 0.1, 0.005, 0.9)
    bench.run("two", "cpu", 0.01, 0.001, 0.9)
    expected["two"] = 8.0
    bench.run("other", "gpu", 0.2, 0.01, 0.9, batch="8")
    bench.run("other", "dla0", 0.1, 0.01, 0.9)
    bench.asks(tmp_path, answered("DLA or GPU?"), expected)
    (panel, *_) = verdict.ANSWER.panels
    assert set(expected.values()) <= {word.value for word in panel.words}


@needs_promtool
def test_what_the_dla_leaves_is_told(tmp_path):
    """GPU freed is a difference of shares; the ratios beside it are of gross energy and medians."""
    bench = Bench()
    bench.run("board", "gpu", 0.2, 0.01, 0.875)
    bench.run("board", "dla0", 0.15, 0.02, 0.125)
    bench.asks(tmp_path, answered("GPU freed"), {"board": 0.75})
    bench.asks(tmp_path, answered("Latency: DLA / GPU"), {"board": 2.0})
    energy = answered("Energy: DLA / GPU")
    bench.asks(tmp_path, f"round({energy}, 0.01)", {"board": 0.75})
    for place, layers in (("dla", 3), ("gpu", 1), ("reformat", 2)):
        bench.add("tegra_inference_layers", "board", "dla0", layers, placement=place)
    bench.asks(tmp_path, answered("Layers on the DLA"), {"board": 0.75})
