"""The screen as lines: of any page, in a window of any size."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tegrascope.daemon.top.screen import ASCII, Glyphs, ScreenState, age, draw, glyphs_of, number
from tegrascope.daemon.top.view import Series, make_view
from tools.fleet.devices import SimulatedDevice
from tools.fleet.plan import plan_device

SHORT = """
tegra_gpu_utilization_ratio 0.5
tegra_dla_active{core="0"} 0
tegra_dla_powered_ratio{core="1"} 0.25
tegra_cpu_online{core="0"} 1
tegra_cpu_utilization_ratio{core="0"} 0.0
tegra_cpu_online{core="1"} 0
tegra_inference_run_active{workload="w",device="dla0"} 0
"""


@pytest.fixture(scope="module")
def pages() -> list[str]:
    """Pages of simulated devices: with two DLA cores and none, hot, and failing."""
    made = []
    for number_ in (1, 3, 6, 18):
        begin_ns = time.monotonic_ns() - 150_000_000_000
        device = SimulatedDevice(
            plan_device(number_, 0, 1.0), begin_ns=begin_ns, interval_seconds=1
        )
        while device.due_ns <= time.monotonic_ns():
            device.step()
        made.append(device.page.render("")[0].decode())
    return [*made, SHORT, ""]


def shown(page: str, width: int, height: int | None = None, **more: object) -> list[str]:
    view = make_view(Series(page), more.pop("runs", ()))  # type: ignore[arg-type]
    state = ScreenState(view, "http://robot-007.example:9754", **more)  # type: ignore[arg-type]
    return [text.plain for text in draw(state, width, height, Glyphs(), "q quits")]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.integers(20, 220), st.integers(3, 70), st.text(max_size=90))
def test_nothing_overflows(pages, which, width, height, problem):
    view = make_view(Series(pages[which]))
    history = [None, 1.0, 50.0] * 40
    state = ScreenState(view, "http://robot:9754", 12.5, history, time.time(), problem)
    lines = draw(state, width, height, Glyphs(), "q quits")
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    assert lines[-1].plain.startswith("q quits")


def test_absent_is_not_zero():
    lines = shown(SHORT, 80)
    rows = {line[:4].strip(): line[:39] for line in lines}
    assert "50 %" in rows["GPU"]
    assert rows["EMC"].split() == ["EMC", "–"]
    assert rows["RAM"].split() == ["RAM", "–"]
    assert rows["DLA0"].split() == ["DLA0", "off"]
    assert rows["DLA1"].split()[-3:] == ["25", "%", "powered"]
    assert "▁x" in rows["CPU"]
    assert lines[0].startswith("tegrascope  board not known yet")
    assert "module                 –" in "\n".join(lines)
    assert "no zone is reported" in lines
    assert "SIMULATED" not in "\n".join(lines)
    workload = next(line for line in lines if line.startswith("w "))
    assert workload.split() == ["w", "dla0", *["–"] * 5, "0/0"]


def test_row_has_the_results_of_the_last_good_run(pages):
    lines = shown(pages[0], 100, now_seconds=time.time())
    (run,) = [line for line in lines if line.startswith("detector-") and " ago " in line]
    assert all(float(figure) > 0 for figure in run.split()[-6:-1])
    assert any(line.strip() == "baseline_drift" for line in lines)
    reason = [{"workload": run.split()[0], "outcome": "timeout", "reason": "hung\x1b[2J"}]
    told = shown(pages[0], 100, runs=reason)
    assert "  timeout: hung?[2J" in told
    assert any("throttled" in line for line in shown(pages[1], 80))
    assert any("/104 °C" in line for line in shown(pages[1], 80))


def test_terminal_without_utf_8_gets_ascii():
    assert glyphs_of("ANSI_X3.4-1968") == ASCII
    assert glyphs_of("UTF-8") == Glyphs()
    assert [number(value, 6, ASCII) for value in (None, 0, 0.00123, 5, 12.345, 123456.0)] == [
        *("     -", "     0", "0.0012", "  5.00", "  12.3", "123456")
    ]
    assert [age(seconds) for seconds in (-1, 90, 600, 86_400, 9e9)] == [
        *("0 s ago", "90 s ago", "10 min ago", "24 h ago", "999 d ago")
    ]
