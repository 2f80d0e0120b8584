"""Who gives the GPU load of a session: the line or NVML, and never both in one window."""

import json
from collections.abc import Mapping
from math import nan
from pathlib import Path

import pytest

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.lines.collector import TegrastatsCollector
from tegrascope.daemon.export.snapshot import LiveState, Snapshot
from tegrascope.daemon.measure.report import Span
from tegrascope.daemon.measure.running_energy import EnergyCounters
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.measure.utilization import telemetry
from tegrascope.daemon.session.telemetry import TelemetryFeed
from tegrascope.parsers.signals import GPU_LOAD, GPU_POWER, Column
from tests.session.test_telemetry import Lines, S

LOADED, BARE = "RAM 1/99MB GR3D_FREQ 87%@[1574]", "RAM 1/99MB GR3D_FREQ @[314]"
COLUMN = "gpu.utilization_ratio"


class Nvml:
    """Gives the load of each line in turn, or nothing."""

    name, source, problem = "nvml", None, None

    def __init__(self, *loads: float | None) -> None:
        self._loads = iter(loads)

    def start(self) -> None:
        """Nothing is to be started."""

    def columns(self) -> Mapping[Column, float]:
        load = next(self._loads)
        power: dict[Column, float] = {(GPU_POWER, ""): 9.0}
        return power if load is None else {**power, (GPU_LOAD, ""): load}

    def stop(self) -> None:
        """Nothing is to be ended."""


def feed(lines: list[str], *loads: float | None) -> tuple[Timeline, list[str | None]]:
    """Feed lines, one per second, with what NVML says at each; return the source in force."""
    collector = TegrastatsCollector(
        Lines([Stamped(i * S, i * S, line) for i, line in enumerate(lines, 1)])
    )
    timeline, live, sources = Timeline(), LiveState(Snapshot()), []
    taking = TelemetryFeed(
        collector,
        timeline=timeline,
        energy=EnergyCounters(),
        live=live,
        occupancy=lambda *_: {},
        companions=(Nvml(*loads),),
    )
    for sample in collector.collect():
        taking.take(sample)
        sources.append(live.snapshot.signal_sources.get("tegra_gpu_utilization_ratio"))
    return timeline, sources


@pytest.mark.parametrize(
    ("lines", "loads", "expected"),
    [
        pytest.param([LOADED] * 5, [0.5] * 5, ["tegrastats"] * 5, id="a percentage"),
        pytest.param([BARE] * 4, [None, 0.5, 0.5, None], [None, "nvml", "nvml", None], id="none"),
        pytest.param([BARE, LOADED, LOADED], [0.5] * 3, ["nvml"] * 3, id="a percentage later"),
        pytest.param(
            [LOADED, BARE, BARE, LOADED, BARE, BARE, LOADED],
            [0.5] * 7,
            ["tegrastats", None, None, "tegrastats", None, None, "tegrastats"],
            id="lines that are cut short",
        ),
        pytest.param(
            [LOADED, BARE, BARE, BARE, LOADED],
            [0.5] * 5,
            ["tegrastats", None, None, "nvml", "nvml"],
            id="a percentage under load only",
        ),
        pytest.param([LOADED, *[BARE] * 4], [None] * 5, ["tegrastats", *[None] * 4], id="refused"),
    ],
)
def test_one_source_is_in_force(lines, loads, expected):
    timeline, sources = feed(lines, *loads)
    assert sources == expected
    cut = timeline.cut(0, len(lines) * S)
    shown = [{"tegrastats": 0.87, "nvml": 0.5, None: nan}[source] for source in expected]
    assert list(cut.columns[COLUMN]) == pytest.approx(shown, nan_ok=True)


def test_a_window_has_the_load_of_one_source():
    """The lines of before NVML began are not mixed into the mean."""
    timeline, _ = feed([LOADED, LOADED, BARE, BARE, BARE, BARE], *[0.25] * 6)
    found = telemetry(timeline.cut(0, 6 * S), Span(begin_ns=0, end_ns=6 * S), None, "tegrastats")
    assert found.utilization["gpu"].max_ratio == 0.25
    assert found.sources == {"gpu": "nvml", "gpu_power": "nvml"}
    before = telemetry(timeline.cut(0, 2 * S), Span(begin_ns=0, end_ns=2 * S), None, "tegrastats")
    assert before.utilization["gpu"].max_ratio == pytest.approx(0.87)
    assert before.sources == {"gpu": "tegrastats", "gpu_power": "nvml"}
    assert json.loads(found.model_dump_json())["gpu_power_watts"] == 9


CAPTURES = sorted((Path(__file__).parents[1] / "captures").glob("*orin*.txt"))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_lines_of_orin_lose_and_change_nothing(capture):
    """NVML adds its power to them, and that is all."""
    lines = capture.read_text(encoding="utf-8").splitlines()
    alone, beside = (
        feed(lines, *loads)[0].cut(0, len(lines) * S).columns
        for loads in ([None] * len(lines), [0.5] * len(lines))
    )
    assert COLUMN in alone
    assert beside.keys() == alone.keys()
    for name, column in alone.items():
        assert list(beside[name]) == pytest.approx(list(column), rel=0, abs=0, nan_ok=True), name
