"""A small coverage campaign: some windows per regime, with seeds drawn at run time.

A share is missed here only at a confidence of 99.99 %, since a seed may be unlucky. The campaign of
1,000 windows per cell is ``make coverage-campaign``.
"""

import secrets

import pytest

from .campaign import judge, run_chunk
from .regimes import cell_of

WINDOWS = 40
CONFIDENCE, SLACK = 0.9999, 1.15

CELLS = (
    "constant 103ms 15s live",
    "constant 103ms 15s correlate",
    "constant 1009ms 15s live",
    "constant 1009ms 120s live",
    "constant-agx 103ms 15s live",
    "ramp-up 103ms 15s live",
    "ramp-down 103ms 15s live",
    "wander-0.15W 103ms 15s live",
    "wander-0.19W 103ms 15s live",
    "wander-agx 103ms 15s live",
    "white 103ms 15s live",
    "heat-weak 103ms 15s live",
    "heat-strong 103ms 15s live",
    "idle-step 103ms 15s live",
    "duty-half 103ms 15s live",
    "duty-half 103ms 15s correlate",
    "20fps 103ms 15s live",
    "30fps 103ms 15s live",
    "60fps 103ms 15s live",
    "57.5ms 103ms 15s live",
    "batches-1.0235s 1009ms 120s live",
    "batches-1.0235s 1009ms 120s correlate",
    "batches-115ms 103ms 15s live",
    "lost-lines 103ms 15s live",
    "lost-bursts 103ms 15s live",
    "late-0.4s 103ms 15s live",
    "late-0.4s 103ms 15s correlate",
    "blocks-10 103ms 15s live",
    "blocks-3 103ms 15s live",
    "averaged-0.13s 103ms 15s live",
    "averaged-0.5s 103ms 15s live",
    "idle-disturbed 103ms 15s live",
    "overlap 103ms 15s live",
)


@pytest.mark.parametrize("name", CELLS)
def test_published_figures_hold_the_truth(name):
    seed = secrets.randbits(32)
    cell = cell_of(name)
    row = judge(cell, run_chunk((name, seed, 0, WINDOWS)), CONFIDENCE, SLACK)
    again = f"python -m tests.truth.campaign --windows 1000 --cells '{name}'"
    assert not row.missed, f"{name}, seed {seed}: {'; '.join(row.missed)}; see {again}"
