"""Dashboards are made in one place, and their answer to the question is right."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.grafana import filled
from tools.dashboards import device, dla_or_gpu, fleet, verdict
from tools.dashboards.catalog import DASHBOARDS
from tools.dashboards.fleet_duty import FLEET
from tools.dashboards.parts import Dashboard, Panel
from tools.dashboards.queries import BELOW_SHUTDOWN, OF_MEDIAN, SIMULATED, TIMES

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
    # Grafana prints what follows `suffix:` behind the number.
    known |= {f"suffix:{what}/s" for what in ("inf", "inputs", "tasks")}
    known |= {BELOW_SHUTDOWN, OF_MEDIAN, SIMULATED, TIMES}
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
    (left_out,) = set(re.findall(r'rail!~"([^"]*)"', power.queries[0].expr))
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
            self.add(name, case, device, joules / (4 if device == "dla0" else 2), kind="net")
        self.add(f"{last}_latency_seconds", case, device, seconds, quantile="0.5")
        self.add(f"{last}_latency_seconds", case, device, 9 * seconds, quantile="0.99")
        self.add(f"{last}_gpu_utilization_ratio", case, device, gpu)

    def asks(self, tmp_path: Path, expr: str, expected: dict[str, float]) -> None:
        """Let promtool hold a query against what it should answer, by case."""
        samples = {
            f'{{job="j",instance="{case}",model="m",batch="1"}}': value
            for case, value in expected.items()
        }
        self.asks_of(tmp_path, filled(expr, ALL), samples)

    def asks_by_device(
        self, tmp_path: Path, expr: str, chosen: dict[str, str], expected: dict[str, int]
    ) -> None:
        """Let promtool hold a query of chosen devices against its answer, by device."""
        samples = {f'{{instance="{one}"}}': value for one, value in expected.items()}
        self.asks_of(tmp_path, filled(expr, chosen), samples)

    def asks_of(self, tmp_path: Path, expr: str, expected: Mapping[str, float]) -> None:
        """Let promtool hold a query against what it should answer, by labels."""
        samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
        asked = {"expr": expr, "eval_time": "1m", "exp_samples": samples}
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
    """Return the query of a column of the answer."""
    table = verdict.ANSWER.panels[0]
    (column,) = (one for one in table.columns if one.title == title)
    return table.queries[ord(column.source) - ord("A")].expr


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
    samples = {
        f'{{job="j",instance="{case}",model="m",batch="1"}}': value
        for case, value in expected.items()
    }
    # Neither batch ran on both, which stands there in words.
    for batch in (1, 8):
        samples[f'{{job="j",instance="other",model="m",batch="{batch}"}}'] = 20.0
    bench.asks_of(tmp_path, filled(answered("Verdict (gross)"), ALL), samples)
    (words,) = (one.words for one in verdict.ANSWER.panels[0].columns if one.words)
    assert set(samples.values()) <= {word.value for word in words}


@needs_promtool
def test_what_the_dla_leaves_is_told(tmp_path):
    """GPU freed is a difference of shares; the ratios beside it are of gross energy and medians."""
    bench = Bench()
    bench.run("board", "gpu", 0.2, 0.01, 0.875)
    bench.run("board", "dla0", 0.15, 0.02, 0.125)
    bench.asks(tmp_path, answered("GPU freed"), {"board": 0.75})
    bench.asks(tmp_path, answered("Latency, DLA / GPU"), {"board": 2.0})
    energy = answered("Gross, DLA / GPU")
    bench.asks(tmp_path, f"round({energy}, 0.01)", {"board": 0.75})
    bench.asks(tmp_path, f"round({answered('Net, DLA / GPU')}, 0.001)", {"board": 0.375})
    for place, layers in (("dla", 3), ("gpu", 1), ("reformat", 2)):
        bench.add("tegra_inference_layers", "board", "dla0", layers, placement=place)
    bench.asks(tmp_path, answered("Layers on the DLA"), {"board": 0.75})


@each_dashboard
def test_what_is_absent_is_neutral(dashboard):
    """Grafana gives the lowest colour to a value that is not there: never red, nor green."""
    path = ROOT / "grafana/dashboards" / dashboard.file
    text = path.read_text(encoding="utf-8")

    def bases(part: Any) -> "list[str]":
        if isinstance(part, list):
            return [color for one in part for color in bases(one)]
        if not isinstance(part, dict):
            return []
        steps = part.get("steps", ()) if part.get("mode") == "absolute" else ()
        found = [step["color"] for step in steps if step.get("value") is None]
        return found + [color for one in part.values() for color in bases(one)]

    assert set(bases(json.loads(text))) == {"transparent"}


@each_dashboard
def test_an_axis_of_zeros_does_not_reach_to_a_hundred(dashboard):
    """A curve from 0 on without an upper end has a least height."""
    path = ROOT / "grafana/dashboards" / dashboard.file
    for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
        given = panel.get("fieldConfig", {}).get("defaults", {})
        if panel["type"] == "timeseries" and given.get("min") == 0 and "max" not in given:
            assert 0 < given["custom"]["axisSoftMax"] <= 1, panel["title"]


@each_dashboard
def test_a_link_keeps_time_source_and_job(dashboard):
    """Who follows a trouble of yesterday stays in yesterday, at the same Prometheus."""
    text = (ROOT / "grafana/dashboards" / dashboard.file).read_text(encoding="utf-8")
    kept = "&${__url_time_range}&${datasource:queryparam}&${job:queryparam}"
    assert all(url.endswith(kept) for url in re.findall(r'"url": "(/d/[^"]+)"', text))
    (menu,) = json.loads(text)["links"]
    assert (menu["keepTime"], menu["includeVars"]) == (True, True)


def test_a_link_uses_what_its_row_has():
    """A field that the table leaves out can't be named in the link of another one."""
    for dashboard in DASHBOARDS:
        for panel in panels(dashboard):
            shown = {column.source for column in panel.columns}
            for column in panel.columns:
                assert set(re.findall(r"__data\.fields\.(\w+)", column.link)) <= shown


def of_fleet(title: str) -> Panel:
    (panel,) = (one for one in panels(fleet.DASHBOARD) if one.title == title)
    return panel


def test_load_of_a_dla_is_that_of_the_rule():
    """The fleet's table, band and list have the expression of the recorded series."""
    groups = yaml.safe_load((ROOT / "grafana/prometheus/rules/recording.yml").read_text("utf-8"))
    rules = {one["record"]: one["expr"] for group in groups["groups"] for one in group["rules"]}
    for title, column, rule in (
        ("DLA busy", "E", "instance_core:tegra_dla_busy_ratio:avg5m"),
        ("DLA powered", "F", "instance_core:tegra_dla_powered_ratio:avg5m"),
    ):
        asked = [query.expr for query in of_fleet(title).queries[:4]]
        asked += [of_fleet(f"{title}: highest").queries[0].expr]
        asked += [of_fleet("Devices").queries[ord(column) - ord("A")].expr]
        for expr in asked:
            plain = expr.replace(f"{{{FLEET}}}", "").replace(f"{FLEET},", "")
            assert " ".join(rules[rule].split()) in plain


@needs_promtool
def test_the_worst_device_is_first(tmp_path):
    """Down, then without telemetry, then by its alerts; one that was never reached is there too."""
    bench = Bench()
    troubles = {
        "gone": 6,
        "mute": 5,
        "melts": 4,
        "slow": 3,
        "waits": 1,
        "hot": 1,
        "warm": 0,
        "well": 0,
        "other": 0,
    }

    def add(name: str, instance: str, value: int, **labels: str) -> None:
        text = ",".join(
            f'{key}="{value}"'
            for key, value in {"job": "j", "instance": instance, **labels}.items()
        )
        bench.series.append({"series": f"{name}{{{text}}}", "values": f"{value}x5"})

    for one in troubles:
        add("up", one, int(one != "gone"), site="yard" if one == "other" else "hall")
        if one != "gone":
            add("tegra_info", one, 1, board="nano" if one == "slow" else "agx", site="hall")
            add("tegrascope_samples_total", one, 9, source="tegrastats", site="hall")
            is_up = int(one != "mute")
            add("tegrascope_source_up", one, is_up, source="tegrastats", site="hall")
            add("tegrascope_source_up", one, 0, source="ftrace", site="hall")
    for one, celsius in (("hot", 97), ("warm", 90)):
        add("tegra_temperature_celsius", one, celsius, zone="cpu", site="hall")
        add("tegra_temperature_trip_celsius", one, 104, zone="cpu", kind="critical", site="hall")
    for one, severity, state in (
        ("melts", "critical", "firing"),
        ("melts", "warning", "firing"),
        ("slow", "warning", "firing"),
        ("waits", "critical", "pending"),
        ("gone", "critical", "firing"),
    ):
        alert = {"alertname": f"Tegra{severity}", "severity": severity, "alertstate": state}
        add("ALERTS", one, 1, site="hall", **alert)
    shown = of_fleet("Devices")
    assert shown.sort == ("-State", "Below shutdown")
    (state,) = (one for one in shown.columns if one.title == "State")
    assert {word.value for word in state.words} >= set(troubles.values())
    every = ALL | {"site": ".*", "board": ".*", "alert": "Tegra.*"}
    for chosen, states in (
        (every, troubles),
        (every | {"site": "yard"}, {"other": 0}),
        (every | {"board": "nano"}, {"slow": 3, "gone": 6}),
        (every | {"alert": "Tegrawarning"}, {**troubles, "melts": 3, "waits": 0}),
    ):
        bench.asks_by_device(tmp_path, shown.queries[1].expr, chosen, states)
    firing = filled(of_fleet("Alerts firing").queries[0].expr, every)
    # The same alert of two zones is one line of the list, and counts once.
    twice = {"alertname": "Tegrawarning", "severity": "warning", "alertstate": "firing"}
    add("ALERTS", "slow", 1, site="hall", zone="gpu", **twice)
    bench.asks_of(tmp_path, firing, {"{}": 4})
    listed = of_fleet("Alerts")
    assert listed.sort[0] == "-State"
    ranks = {("melts", "critical"): 4, ("gone", "critical"): 4, ("melts", "warning"): 3,
             ("slow", "warning"): 3, ("waits", "critical"): 1}  # fmt: skip
    bench.asks_of(
        tmp_path,
        filled(listed.queries[0].expr, every),
        {
            f'{{alertname="Tegra{name}",instance="{of}"}}': rank
            for (of, name), rank in ranks.items()
        },
    )


@each_dashboard
def test_a_quantile_of_buckets_is_called_an_estimate(dashboard):
    """It differs from the exact one of a run, which may stand beside it."""
    for panel in panels(dashboard):
        if any("histogram_quantile" in query.expr for query in panel.queries):
            assert panel.title.endswith(", estimate from buckets")


@each_dashboard
def test_a_mean_without_work_is_no_point(dashboard):
    """Zero by zero is not a number; a line through it invents a value between two runs."""
    for panel in panels(dashboard):
        for query in panel.queries:
            assert "/ rate(" not in query.expr, panel.title


@each_dashboard
def test_energy_of_an_inference_has_its_kind(dashboard):
    """Gross and net energy can name different devices."""
    for panel in panels(dashboard):
        for query in panel.queries:
            if "energy_joules_per_inference" not in query.expr or panel.kind == "table":
                continue
            assert "gross" in (panel.title + query.legend).lower() or "{{kind}}" in query.legend


def test_simulated_is_no_doubt():
    """The flag that every run of a simulated board has is not among the doubts."""
    for dashboard, title in (
        (fleet.DASHBOARD, "Quality flags of the last good runs"),
        (dla_or_gpu.DASHBOARD, "Quality flags of these runs"),
    ):
        (panel,) = (one for one in panels(dashboard) if one.title == title)
        assert 'flag!="simulated"' in panel.queries[0].expr


def test_no_graph_of_the_fleet_has_a_line_for_each_device():
    """With a thousand devices a graph has a band, and a list has the most extreme ones."""
    for panel in panels(fleet.DASHBOARD):
        for query in panel.queries:
            if panel.kind == "timeseries":
                assert re.match(r"(quantile|max|min)\(", query.expr), panel.title
            if panel.kind == "bars":
                assert re.match(r"(topk|bottomk)\((10|20), ", query.expr), panel.title
