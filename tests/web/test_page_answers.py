"""The answers for the status page: documents, steps of telemetry, and summaries of runs."""

import base64
import hashlib
import json
import re
from itertools import pairwise
from math import fsum
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from tegrascope.daemon.measure.report import Flag, RunReport
from tegrascope.daemon.measure.timeline import SealedBlock, Timeline
from tegrascope.daemon.settings.config import boot_id
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.daemon.web.status_page import (
    STATIC,
    bands,
    page_response,
    series,
    summaries,
)
from tools.joined_page import PAGES, SOURCES, join_page

S = 1_000_000_000
WALL = 1_767_225_600 * S
ROOT = Path(__file__).parents[2]
SOURCE_FILES = sorted(path.name for path in SOURCES.iterdir())


def asked(**headers: str) -> Request:
    """Return a request with these headers."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": raw})


@pytest.mark.parametrize("name", ["index.html", "run.html"])
def test_page_is_one_document_that_loads_no_other_host(name):
    """One document with a policy for its own script and style, sent once."""
    sent = page_response(name, asked())
    text = sent.body.decode()
    (script,) = re.findall('<script type="module">(.*?)</script>', text, re.DOTALL)
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    assert not re.search(r"<(script|link)[^>]* (src|href)=\"(?!data:)", text)
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    policy = sent.headers["content-security-policy"]
    for kind, inside in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"; {kind}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert sent.headers["x-content-type-options"] == "nosniff"
    again = page_response(name, asked(**{"if-none-match": f'"other", {sent.headers["etag"]}'}))
    assert (again.status_code, again.body) == (304, b"")


@pytest.mark.parametrize("name", PAGES)
def test_page_is_joined_from_its_present_sources(name):
    """Otherwise run ``make docs``."""
    assert (STATIC / name).read_text(encoding="utf-8") == join_page(SOURCES / name)


@pytest.mark.parametrize("name", SOURCE_FILES)
def test_files_name_no_other_host_and_write_no_markup(name):
    text = (SOURCES / name).read_text(encoding="utf-8").replace("http://www.w3.org/", "")
    assert "//" not in re.sub(r"^\s*//.*$|[^:]//.*$", "", text, flags=re.MULTILINE)
    assert not re.search(r"innerHTML|insertAdjacentHTML|\beval\b|style=|onclick=", text)


def test_modules_are_joined_each_once_and_apart(tmp_path):
    """Imported modules come first; each module has its own names."""
    (tmp_path / "a.js").write_text(
        'import { b } from "./b.js";\nimport { c, d } from "./c.js";\nconst own = 1;\nb(own);\n'
    )
    (tmp_path / "b.js").write_text(
        'import { d } from "./c.js";\nimport e from "./e.json" with { type: "json" };\n'
        "const own = 2;\nexport async function b() {}\n"
    )
    (tmp_path / "c.js").write_text("export const c = 1;\nexport class d {}\n")
    (tmp_path / "e.json").write_text('{"e": 1}\n')
    (tmp_path / "page.html").write_text('<script type="module" src="a.js"></script>')
    assert join_page(tmp_path / "page.html") == (
        '<script type="module">'
        "const $c = (() => {\nconst c = 1;\nclass d {}\nreturn { c, d };\n})();\n"
        'const $e_json = {"e": 1};\n'
        "const $b = (() => {\nconst { d } = $c;\nconst e = $e_json;\n"
        "const own = 2;\nasync function b() {}\nreturn { b };\n})();\n"
        "const $a = (() => {\nconst { b } = $b;\nconst { c, d } = $c;\n"
        "const own = 1;\nb(own);\nreturn {  };\n})();\n"
        "</script>"
    )


def test_every_flag_has_its_sentence():
    told = json.loads((SOURCES / "flags.json").read_text(encoding="utf-8"))
    assert list(told) == list(get_args(Flag))
    page = (ROOT / "docs/measurement.md").read_text(encoding="utf-8")
    for flag, sentence in told.items():
        assert f"| `{flag}` |" in page
        assert sentence.endswith(".")


class Telemetry:
    """A store and a timeline that feeds it; ``restart`` leaves all in the store."""

    def __init__(self, path):
        self.store = Store(path / "runs.db", boot_id())
        self.unwritten: list[SealedBlock] = []
        self.timeline = Timeline(on_sealed=self.unwritten.append)

    def restart(self):
        self.timeline.seal()
        while self.unwritten:
            self.store.add_block(self.unwritten.pop(0))
        self.timeline = Timeline(on_sealed=self.unwritten.append)

    def append(self, seconds, **values):
        assert self.timeline.append(int(seconds * S), WALL + int(seconds * S), values)

    def ask(self, since, until, step):
        history = History(self.store.path)
        window = (int(n * S) for n in (WALL / S + since, WALL / S + until, step))
        return json.loads("".join(series(history, self.timeline, *window)))

    def rows(self, since, until, step):
        """Return begin, values of each step, with the seconds of the test."""
        return [
            (row[0] - WALL / S, dict(zip(part["columns"], zip(*row[1:], strict=True), strict=True)))
            for part in self.ask(since, until, step)["parts"]
            for row in part["rows"]
        ]


@pytest.fixture
def telemetry(tmp_path):
    made = Telemetry(tmp_path)
    yield made
    made.store.close()


def test_steps_meet_without_a_seam(telemetry):
    """Each sample is in one step, from the store, the timeline or the open block."""
    for number in range(1, 300):
        telemetry.append(number / 10, **{"gpu.utilization_ratio": number / 1000})
        if number == 120:
            telemetry.restart()
    rows = telemetry.rows(0, 30, 2)
    assert [begin for begin, _ in rows] == [*range(0, 30, 2)]
    for begin, values in rows:
        inside = [n / 1000 for n in range(1, 300) if begin <= n / 10 < begin + 2]
        mean, highest = values["ratio/gpu"]
        assert mean == pytest.approx(fsum(inside) / len(inside), abs=6e-4)
        assert highest == pytest.approx(max(inside), abs=6e-4)
    # Asking again from the newest step on gives that step whole, and nothing before it.
    assert telemetry.rows(28, 31, 2) == rows[-1:]
    assert telemetry.rows(9, 12, 2) == rows[4:7]
    assert telemetry.ask(0, 30, 2)["interval"] == pytest.approx(0.1)


def test_step_without_samples_has_no_row_and_an_absent_signal_no_column(telemetry):
    telemetry.append(1, **{"rails.VDD_IN.instant_watts": 5.0, "rails.VDD_IN.average_watts": 4.0})
    telemetry.append(9, **{"dla.0.on": 1.0, "dla.0.busy_ratio": 0.5, "fans.f.speed_ratio": 1.0})
    assert telemetry.rows(0, 20, 2) == [
        (0, {"watts/VDD_IN": (5.0, 5.0)}),
        (8, {"ratio/dla0:ftrace": (0.5, 0.5), "on/dla0": (1.0, 1.0)}),
    ]
    assert telemetry.ask(100, 200, 2) == {"step": 2, "parts": [], "interval": None}


def test_old_window_is_cut_at_both_ends(telemetry):
    for number in range(100):
        telemetry.append(number, **{"gpu.utilization_ratio": 0.5})
    telemetry.restart()
    for number in range(5000, 5010):
        telemetry.append(number, **{"gpu.utilization_ratio": 0.25})
    begins = [begin for begin, _ in telemetry.rows(40, 60, 5)]
    assert begins == [40, 45, 50, 55, 60]


@given(st.lists(st.floats(0.01, 7), min_size=1, max_size=40), st.sampled_from([0.5, 2.0, 7.0]))
def test_no_sample_is_lost_or_counted_twice(steps, step):
    timeline = Timeline(block_seconds=5)
    at, expected = 0.0, {}
    for gap in steps:
        at += gap
        wall = WALL + int(at * S)
        timeline.append(int(at * S), wall, {"gpu.utilization_ratio": 0.5})
        expected[wall // int(step * S)] = True

    class Nothing:
        def blocks(self, *_):
            return iter(())

    window = (WALL, WALL + 1000 * S, int(step * S))
    told = json.loads("".join(series(Nothing(), timeline, *window)))  # type: ignore[arg-type]
    begins = [row[0] for part in told["parts"] for row in part["rows"]]
    assert begins == [pytest.approx(number * step) for number in expected]
    assert all(a < b for a, b in pairwise(begins))


def test_summaries_equal_the_reports(tmp_path):
    store = Store(tmp_path / "runs.db")
    made = RunReport(
        run_id="r1",
        workload="it's",
        backend="b",
        device="dla0",
        outcome="failed",
        reason='a "quoted" reason',
        started_wall_ns=5 * S,
        started_ns=10,
        ended_ns=20,
        phases={"steady": {"begin_ns": 12, "end_ns": 18}},
        quality=("overlapped", "simulated"),
        overlapping_runs=("r0",),
        latency={
            f"{name}_seconds": 0.25
            for name in ("min", "mean", "p50", "p90", "p95", "p99", "p999", "max")
        }
        | {"count": 3},
    )
    store.finish(made)
    store.begin(made.model_copy(update={"run_id": "r2", "started_wall_ns": 9 * S}))
    told = json.loads("".join(summaries(History(store.path), 10, None)))
    (running,) = told["in_flight"]
    assert (running["run_id"], running["started_seconds"]) == ("r2", 9.0)
    unknown = ("outcome", "reason", "ended_ns", "inferences")
    assert {running[name] for name in unknown} == {None}  # what is stored is for a daemon's death
    (run,) = told["runs"]
    assert run["steady"] == {"begin_ns": 12, "end_ns": 18}
    assert run["quality"] == ["overlapped", "simulated"]
    assert run["overlapping_runs"] == ["r0"]
    assert (run["workload"], run["reason"]) == ("it's", 'a "quoted" reason')
    assert (run["p50_seconds"], run["gross_joules"], run["started_seconds"]) == (0.25, None, 5.0)
    assert json.loads("".join(summaries(History(store.path), 10, 5 * S)))["runs"] == []
    store.close()


def test_bands_are_complete_from_the_time_that_the_answer_says(tmp_path):
    """Runs that ended after a time, newest first, without skipped ones; too many are cut."""
    store = Store(tmp_path / "runs.db")
    for number in range(10):
        store.finish(
            RunReport(
                run_id=f"r{number}",
                workload="w",
                backend="b",
                device="gpu",
                outcome="skipped" if number == 4 else "ok",
                reason="busy" if number == 4 else None,
                started_wall_ns=(1000 + 10 * number) * S,
                started_ns=5 * S,
                ended_ns=20 * S,
                phases={"steady": {"begin_ns": 6 * S, "end_ns": 9 * S}},
            )
        )
    history = History(store.path)
    told = bands(history, 1020.0, 100)
    ids = [row[0] for row in told["bands"]]
    assert ids == ["r9", "r8", "r7", "r6", "r5", "r3", "r2", "r1"]  # r1 lasted until 1025
    assert told["since"] == 1020.0
    assert told["bands"][-1] == ["r1", "w", "gpu", "ok", 1010.0, 1025.0, 1011.0, 1014.0]
    cut = bands(history, 0.0, 3)
    assert ([row[0] for row in cut["bands"]], cut["since"]) == (["r9", "r8", "r7"], 1070.0)
    assert [row[0] for row in bands(history, 0.0, 2, 1030 * S)["bands"]] == ["r2", "r1"]
    store.close()
