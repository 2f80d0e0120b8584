"""A few random worlds, with seeds drawn at run time; ``random_worlds.py`` draws thousands.

A share is missed here only at a confidence of 99.99 %, since a seed may be unlucky.
"""

import secrets
from pathlib import Path

import numpy as np
import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.report import Span
from tegrascope.daemon.measure.sensor import suspect_rail
from tegrascope.parsers.signals import RAIL_POWER
from tegrascope.workbench.tables import frames
from tegrascope.workbench.tables.data_frames import table_of
from tegrascope.workbench.tables.recorded_log import recorded_logs

from .board import AGX_ORIN, ORIN_NX, Board, Rail
from .campaign import not_below
from .pairing import ns_of, samples_of
from .random_worlds import KINDS, outcomes
from .worlds import make_world

WORLDS = 50
CONFIDENCE = 0.9999
CAPTURES = Path(__file__).parents[1] / "captures"

AGX_XAVIER = Board(
    "AGX Xavier",
    (
        Rail("GPU", 0.15, 1.2, 0.5, 0.3),
        Rail("CPU", 0.15, 1.5, 0.1, 0.2),
        Rail("SOC", 0.15, 2.0, 0.1, 0.2),
        Rail("CV", 0.15, 0.8, 0.1, 0.1),
        Rail("VDDRQ", 0.15, 1.0, 0.1, 0.1),
        Rail("SYS5V", 0.04, 3.0, 0.1, 0.1),
    ),
)


def test_published_figures_hold_the_truth_of_random_worlds():
    seed = secrets.randbits(32)
    found = []
    for number in range(WORLDS):
        found += outcomes(make_world(np.random.default_rng([seed, number])), number)
    checked = set()
    for kind in KINDS:
        for energy in ("gross", "net"):
            clear = [
                one
                for one in found
                if (one.kind, one.energy) == (kind, energy)
                and one.may_be_published
                and not one.is_hidden
            ]
            if not clear:
                continue
            checked.add((kind, energy))
            shown = [one for one in clear if one.figure.is_published]
            held = sum(one.figure.holds(one.truth) for one in shown)
            case = f"seed {seed}, {kind}, {energy}: {held} right of {len(shown)} of {len(clear)}"
            assert not_below(held, len(shown), 0.93, CONFIDENCE), case
            assert not_below(len(shown), len(clear), 0.6, CONFIDENCE), case
    assert {(kind, "gross") for kind in KINDS} <= checked, f"seed {seed}"


@pytest.mark.parametrize("board", [ORIN_NX, AGX_ORIN, AGX_XAVIER], ids=lambda board: board.name)
def test_sensor_that_works_is_not_suspect(board):
    """At each step of a board's sensors, with work of all kinds and on and off."""
    seed, sound, suspect = secrets.randbits(32), 0, []
    for number in range(60):
        world = make_world(np.random.default_rng([seed, number]), board)
        if world.register.kind in ("stuck", "frozen", "clipped"):
            continue
        sound += 1
        (before, begin), (end, after) = world.idle_phases
        samples = samples_of(world, before, after)
        rule = find_rail_rule(RAIL_POWER.by_label(samples.columns))
        spans = [
            Span(begin_ns=ns_of(low), end_ns=ns_of(high))
            for low, high in ((begin, end), (before, begin), (end, after))
        ]
        reason = suspect_rail(samples, rule, spans[0], spans[1:])
        if reason is not None:
            suspect.append(f"{number}: {world.about}: {reason}")
    assert not_below(sound - len(suspect), sound, 0.98, CONFIDENCE), (seed, suspect)


def test_recorded_lines_of_boards_are_not_suspect():
    judged, suspect = 0, []
    for path in sorted(CAPTURES.glob("*.txt")):
        for log in recorded_logs(table_of(frames.read_log(path))):
            cut = log.cut(0, log.last_ns)
            rule = find_rail_rule(RAIL_POWER.by_label(cut.columns))
            if rule is None:
                continue
            judged += 1
            for low, high in ((1 / 3, 2 / 3), (0.1, 0.9), (0.5, 0.95)):
                span = Span(begin_ns=int(low * log.last_ns), end_ns=int(high * log.last_ns))
                if suspect_rail(cut, rule, span, []) is not None:
                    suspect.append(path.stem)
    assert judged >= 15
    assert suspect == []
