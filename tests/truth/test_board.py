"""The ground truth itself: its energy is exact, its noise like the recorded one, its lines late."""

import ast
from pathlib import Path

import numpy as np
import pytest

from . import best
from .board import AGX_ORIN, ORIN_NX, Heat, Idle, Load, Power, Printing, Sensor, print_lines, wander
from .campaign import not_below
from .likelihood import powers
from .regimes import REGIMES, cell_of, cells, make_window

WITHOUT_PRODUCT = ("board", "regimes", "best", "likelihood")


def world(seed=1, load=None, **changes):
    given = {"board": ORIN_NX, "seconds": 40.0, "idle": Idle(), "heat": Heat()} | changes
    loads = [load or Load(10.0, 30.0, (5.0, 5.0))]
    random = np.random.default_rng(seed)
    return Power(
        given["board"], given["seconds"], loads, given["idle"], given["heat"], random
    ), random


@pytest.mark.parametrize("name", WITHOUT_PRODUCT)
def test_truth_imports_nothing_of_the_product(name):
    tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text())
    imported = [
        node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    ]
    own = {"board", "regimes", "best"}
    assert {one.split(".")[0] for one in imported} <= own | {
        *("argparse", "collections", "dataclasses", "functools", "math", "numpy", "secrets"),
        *("sys", "typing", ""),
    }


def test_energy_of_constant_work_and_of_a_ramp_is_exact():
    constant, _ = world()
    assert constant.work(10.0, 30.0) == pytest.approx(100.0, abs=1e-6)
    assert constant.work(12.34567, 17.34567) == pytest.approx(25.0, abs=1e-6)
    ramp, _ = world(load=Load(10.0, 30.0, (3.0, 7.0)))
    assert ramp.work(10.0, 30.0) == pytest.approx(100.0, abs=1e-6)
    assert ramp.work(10.0, 20.0) == pytest.approx(40.0, abs=1e-6)


def test_gated_work_draws_in_its_inferences_only():
    starts = np.arange(10.0, 29.9, 0.1)
    load = Load(10.0, 30.0, (4.0, 4.0), starts, np.full(len(starts), 0.0303), is_gated=True)
    power, _ = world(load=load)
    assert power.net(10.0, 30.0) == pytest.approx(4 * 0.0303 * len(starts), abs=1e-6)


def test_net_is_the_difference_to_the_same_board_without_the_work():
    for board in (ORIN_NX, AGX_ORIN):
        busy, _ = world(board=board, heat=Heat(0.3, 12.0))
        quiet, _ = world(board=board, load=Load(10.0, 30.0, (0.0, 0.0)))
        net = busy.gross(10.0, 30.0) - quiet.gross(10.0, 30.0)
        assert busy.net(10.0, 30.0) == pytest.approx(net, abs=1e-6)
        # Leakage of 0.3 W per watt after 12 s: 5 W for 20 s add 1.5 W · (20 - 12·(1 - e^(-20/12))).
        heat = 1.5 * (20 - 12 * (1 - np.exp(-20 / 12)))
        assert net - busy.work(10.0, 30.0) == pytest.approx(heat, rel=0.01)


def test_wander_is_like_the_recorded_one():
    random = np.random.default_rng(2)
    courses = [0.07 * wander(40_000, 0.005, 0.7, random) for _ in range(20)]
    assert np.std(courses) == pytest.approx(0.07, rel=0.1)
    for records, low, high in ((1, 0.82, 0.9), (8, 0.14, 0.4)):
        away = round(0.109 * records / 0.005)
        alike = np.mean([np.mean(c[away:] * c[:-away]) for c in courses]) / 0.07**2
        assert low < alike < high


def test_readings_are_late_rounded_and_averaged():
    power, random = world(idle=Idle(wander_watts=0.0), seconds=60.0)
    lines = print_lines(power, Sensor(), Printing(), random)
    steps = np.diff(lines.printed)
    assert steps.min() > 0.109 and steps.max() < 0.126
    assert np.allclose(np.round(lines.watts / 0.04) * 0.04, lines.watts, atol=1e-9)
    high = lines.printed[lines.watts[0] > lines.watts[0].mean()]
    assert 0 <= high[0] - 10.0 < 0.045 + 0.125
    slow = print_lines(power, Sensor(averages_seconds=1.0), Printing(), random)
    between = (slow.printed > 10.1) & (slow.printed < 10.9)
    assert np.all(np.diff(slow.watts[0][between]) > 0)


def test_lines_get_lost_and_arrive_in_blocks():
    power, random = world(seconds=60.0)
    whole = len(print_lines(power, Sensor(), Printing(), random).printed)
    lost = len(print_lines(power, Sensor(), Printing(lost=0.05), random).printed)
    assert 0.85 * whole < lost < whole
    blocks = print_lines(power, Sensor(), Printing(block=10), random)
    assert len(np.unique(blocks.arrived)) == -(-len(blocks.arrived) // 10)
    assert np.all(blocks.arrived >= blocks.printed)


def test_names_of_cells_are_unique_and_found():
    names = [cell.name for cell in cells()]
    assert len(names) == len(set(names))
    assert all(cell_of(cell.name) == cell for cell in cells())
    assert len({regime.name for regime in REGIMES}) == len(REGIMES)


def test_best_width_is_that_of_a_plain_estimator_with_full_knowledge():
    cell = cell_of("wander-0.15W 103ms 15s live")
    random, errors = np.random.default_rng(3), []
    for _ in range(100):
        window = make_window(cell, random)
        errors.append(best.plain(window)[3] - window.power.net(window.begin, window.end))
    _, net = best.formula(cell, window.setup, 5.0)
    assert 0.6 * net < np.quantile(np.abs(errors), 0.95) < 1.2 * net


def test_share_is_missed_only_with_confidence():
    assert not_below(93, 100, 0.93) and not_below(88, 100, 0.93)
    assert not not_below(85, 100, 0.93)
    assert not_below(912, 1000, 0.93) and not not_below(905, 1000, 0.93)


def test_a_difference_of_five_percent_can_be_found():
    found = powers(seed=4, benches=10, difference=0.05)
    assert min(found.values()) >= 0.8
