"""Random worlds through the product: ``python -m tests.truth.random_worlds``.

Draws worlds (``worlds.py``) with a seed of its own, pairs each live with two series of readings,
live with one, and from a recorded log, and counts how many published intervals hold the truth, with
and without the worlds that are indistinguishable from another one. The exit status is 1 if a
required share is missed.
"""

import argparse
import json
import multiprocessing
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tegrascope.parsers.errors import UserError

from .pairing import Figure, Paired, pair_live, pair_recorded
from .worlds import World, make_world

KINDS = ("two series", "one series", "correlate")
CHUNK = 10
REQUIRED_ALL = {"two series": 0.93, "one series": 0.85, "correlate": 0.85}
REQUIRED = 0.93
SHOWN = 0.60
FAR_HALF_WIDTHS, MOST_FAR = 3.0, 0.010
MOST_HIDDEN = 0.03


@dataclass(frozen=True, slots=True)
class Outcome:
    """One figure of one world: the truth, what was published, and what is known of the world."""

    number: int
    about: str
    kind: str
    energy: str
    truth: float
    figure: Figure
    flags: tuple[str, ...]
    is_hidden: bool
    may_be_published: bool

    @property
    def halves_off(self) -> float:
        """Distance of the truth from the middle of the interval, in half widths."""
        low, high = self.figure.low, self.figure.high
        if low is None or high is None:
            return float("inf")
        return abs(self.truth - (low + high) / 2) / max((high - low) / 2, 1e-9)


def outcomes(world: World, number: int, kinds: Sequence[str] = KINDS) -> Iterator[Outcome]:
    """Yield the figures of one world by each kind of pairing."""
    gross = world.power.gross(world.begin, world.end)
    net = world.power.net(world.begin, world.end)
    for kind in kinds:
        is_hidden = world.is_hidden_in_both if kind == "two series" else world.is_hidden
        paired = _paired(world, kind)
        for energy, truth, figure in (("gross", gross, paired.gross), ("net", net, paired.net)):
            if energy == "net" and kind == "correlate":
                continue
            yield Outcome(
                number,
                world.about,
                kind,
                energy,
                truth,
                figure,
                paired.flags,
                is_hidden or (energy == "net" and world.is_net_hidden),
                world.may_be_published,
            )


def _paired(world: World, kind: str) -> Paired:
    if kind == "correlate":
        try:
            return pair_recorded([world])[0]
        except UserError:
            # A clock that went back: a moment of the log has two places.
            return Paired(Figure(), Figure(), ("refused",))
    return pair_live(world, "world", second=world.second if kind == "two series" else None)


def run_chunk(order: tuple[int, int, int, tuple[str, ...]]) -> list[Outcome]:
    """Return the outcomes of some worlds: seed, first number, count, kinds."""
    seed, first, count, kinds = order
    found = []
    for number in range(first, first + count):
        found += outcomes(make_world(np.random.default_rng([seed, number])), number, kinds)
    return found


@dataclass(frozen=True, slots=True)
class Score:
    """What was published of one kind of figure."""

    windows: int
    hidden: int
    shown: int
    shown_of_visible: float
    held_all: float
    held: float
    far: float
    half: float

    @classmethod
    def of(cls, found: Sequence[Outcome]) -> "Score":
        """Count the outcomes of one kind."""
        ready = [one for one in found if one.may_be_published]
        shown = [one for one in ready if one.figure.is_published]
        visible = [one for one in ready if not one.is_hidden]
        clear = [one for one in shown if not one.is_hidden]
        halves = [
            (one.figure.high - one.figure.low) / 2 / abs(one.truth)
            for one in clear
            if one.figure.high is not None and one.figure.low is not None and one.truth
        ]
        return cls(
            len(ready),
            len(ready) - len(visible),
            len(shown),
            len(clear) / max(len(visible), 1),
            _share(shown),
            _share(clear),
            sum(one.halves_off > FAR_HALF_WIDTHS for one in clear) / max(len(clear), 1),
            float(np.median(halves)) if halves else float("nan"),
        )


def _share(found: Sequence[Outcome]) -> float:
    return sum(one.figure.holds(one.truth) for one in found) / max(len(found), 1)


def missed(kind: str, score: Score) -> list[str]:
    """Return the requirements that a score misses."""
    wrong = []
    if score.held_all < REQUIRED_ALL[kind]:
        wrong.append(f"{score.held_all:.1%} of all right, {REQUIRED_ALL[kind]:.0%} needed")
    if score.held < REQUIRED:
        wrong.append(f"{score.held:.1%} of the distinguishable right, {REQUIRED:.0%} needed")
    if score.shown_of_visible < SHOWN:
        wrong.append(f"{score.shown_of_visible:.0%} shown, {SHOWN:.0%} needed")
    if score.far > MOST_FAR:
        wrong.append(f"{score.far:.1%} off by more than three half widths")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worlds, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(prog="tests.truth.random_worlds", description=__doc__)
    parser.add_argument("--worlds", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, help="default: drawn now")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--details", type=Path, help="file for one line of JSON per figure")
    given = parser.parse_args(arguments)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    began = time.monotonic()
    print(f"seed {seed}, {given.worlds} worlds", flush=True)
    orders = [
        (seed, first, min(CHUNK, given.worlds - first), tuple(given.kinds))
        for first in range(0, given.worlds, CHUNK)
    ]
    found: list[Outcome] = []
    with multiprocessing.Pool(given.jobs) as pool:
        for part in pool.imap(run_chunk, orders):
            found += part
    if given.details is not None:
        _write(found, given.details)
    status = 0
    for kind in given.kinds:
        for energy in ("gross", "net"):
            chosen = [one for one in found if one.kind == kind and one.energy == energy]
            if not chosen:
                continue
            score = Score.of(chosen)
            wrong = missed(kind, score)
            status = status or bool(wrong)
            print(
                f"{kind:11} {energy:5} {score.windows} worlds, {score.hidden} hidden;"
                f" shown {score.shown} ({score.shown_of_visible:.0%} of the others);"
                f" right {score.held_all:.1%} of all, {score.held:.1%} of the others;"
                f" off by > 3 half widths {score.far:.1%}; half width {score.half:.2%};"
                f" {'; '.join(wrong) or 'holds'}"
            )
            flags = Counter(
                flag for one in chosen if not one.figure.is_published for flag in one.flags
            )
            print("   withheld:", dict(flags.most_common(6)))
    print(f"{time.monotonic() - began:.0f} s")
    return int(status)


def _write(found: Sequence[Outcome], path: Path) -> None:
    lines = []
    for one in found:
        lines.append(
            json.dumps(
                {
                    "number": one.number,
                    "about": one.about,
                    "kind": one.kind,
                    "energy": one.energy,
                    "truth": one.truth,
                    "joules": one.figure.joules,
                    "low": one.figure.low,
                    "high": one.figure.high,
                    "flags": one.flags,
                    "hidden": bool(one.is_hidden),
                    "ready": bool(one.may_be_published),
                }
            )
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
