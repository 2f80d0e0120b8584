"""A small coverage campaign: some windows per regime, with seeds drawn at run time.

A share is missed here only at a confidence of 99.99 %, since a seed may be unlucky. The campaign of
1,000 windows per cell is ``make coverage-campaign``.
"""

import secrets

import pytest

from .campaign import Outcome, judge, run_chunk
from .pairing import Figure, Paired
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
    "unmarked-1s 1009ms 120s live",
    "in-turn-56ms 103ms 30s live",
    "unmarked-117ms-own-pace 103ms 30s live",
    "key-frame-own-pace 1009ms 120s live",
    "updates-0.2s-20fps 103ms 60s live",
    "updates-0.2s-20fps 103ms 60s correlate",
    "updates-1s 103ms 120s live",
    "forgets-0.5s 103ms 15s live",
    "forgets-0.5s 103ms 15s correlate",
    "forgets-0.5s-unsaid 103ms 15s live",
    "averaged-0.5s-unsaid 103ms 15s correlate",
    "lines-wait-for-bursts 103ms 60s live",
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


def outcome(half_share=0.0025, off=0.0, *, withheld=False, may_be_published=True):
    """Return a window of 180 J, 75 J of them net, and figures that are off by so many halves."""

    def figure(truth):
        half = half_share * 75
        middle = truth + off * half
        return Figure() if withheld else Figure(middle, middle - half, middle + half)

    paired = Paired(figure(180.0), figure(75.0), ("aliased",) if withheld else ())
    return Outcome(paired, 180.0, 75.0, 75.0, may_be_published, (0.5, 0.5, 0.5, 0.5))


@pytest.mark.parametrize(
    ("bad", "missed"),
    [
        (outcome(), ()),
        (outcome(off=1.2), ("gross coverage 80.0% of 100", "net coverage 80.0% of 100")),
        (outcome(withheld=True), ("gross published 80%, least 90%",)),
        (
            outcome(may_be_published=False),
            (
                "gross published in 20 of 20 windows that may not be",
                "net published in 20 of 20 windows that may not be",
            ),
        ),
    ],
    ids=["sound", "wrong", "withheld", "too short"],
)
def test_campaign_misses_what_is_wrong(bad, missed):
    """Of 100 windows 80 are sound; a fifth is wrong, withheld, or published against the rules."""
    cell = cell_of("constant 103ms 15s live")
    assert judge(cell, [outcome()] * 80 + [bad] * 20).missed == missed


def test_campaign_misses_intervals_that_are_wide():
    cell = cell_of("constant 103ms 15s live")
    missed = judge(cell, [outcome(half_share=0.5)] * 100).missed
    assert [one.split()[:2] for one in missed] == [["gross", "width"], ["net", "width"]]
