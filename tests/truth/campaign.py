"""The coverage campaign: ``python -m tests.truth.campaign``, or ``make coverage-campaign``.

Holds every published figure against the truth, cell by cell, and prints a table. The exit status is
1 if a required figure is missed.
"""

import argparse
import fnmatch
import math
import multiprocessing
import secrets
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import best
from .pairing import Figure, Paired, pair_live, pair_recorded
from .regimes import Cell, cell_of, cells, make_window

COVERAGE, CONFIDENCE = 0.93, 0.99
PUBLISHED_GROSS, PUBLISHED_NET = 0.90, 0.80
# Times the best possible. It knows that no rhythm is without a mark and that the edges are quiet;
# the intervals do not.
WIDEST, WIDEST_ELSEWHERE = 1.7, 4.0
CHUNK = 20
FEW = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """One window: the truth, the product's figures, and the errors of plain estimators.

    ``gross`` and ``net`` are true energies, and ``work`` is net without the heat of the work.
    """

    paired: Paired
    gross: float
    net: float
    work: float
    may_be_published: bool
    plain: tuple[float, float, float, float]


def run_chunk(order: tuple[str, int, int, int]) -> list[Outcome]:
    """Return the outcomes of some windows; the order is name of cell, seed, number and count."""
    name, seed, number, count = order
    cell = cell_of(name)
    random = np.random.default_rng([seed, zlib.crc32(cell.name.encode()), number])
    windows = [make_window(cell, random) for _ in range(count)]
    if cell.pairing == "live":
        paired = [pair_live(one, f"{number}-{i}", one.second) for i, one in enumerate(windows)]
    else:
        paired = pair_recorded(windows)
    outcomes = []
    for window, figures in zip(windows, paired, strict=True):
        truth = window.power
        gross, net = truth.gross(window.begin, window.end), truth.net(window.begin, window.end)
        estimates = best.plain(window)
        outcomes.append(
            Outcome(
                figures,
                gross,
                net,
                truth.work(window.begin, window.end),
                window.may_be_published,
                tuple(e - t for e, t in zip(estimates, (gross, net) * 2, strict=True)),
            )
        )
    return outcomes


def run(chosen: Sequence[Cell], windows: int, seed: int, jobs: int) -> Iterator["Row"]:
    """Yield the row of each cell, in order; cells that are always withheld need fewer windows."""
    counts = {cell.name: windows // 10 if cell.is_withheld else windows for cell in chosen}
    counts = {name: max(count, min(windows, CHUNK)) for name, count in counts.items()}
    orders = [
        (cell.name, seed, number, min(CHUNK, counts[cell.name] - number * CHUNK))
        for cell in chosen
        for number in range(-(-counts[cell.name] // CHUNK))
    ]
    with multiprocessing.Pool(jobs) as pool:
        found = pool.imap(run_chunk, orders)
        for cell in chosen:
            outcomes: list[Outcome] = []
            while len(outcomes) < counts[cell.name]:
                outcomes += next(found)
            yield judge(cell, outcomes)


def not_below(successes: int, trials: int, share: float, confidence: float = CONFIDENCE) -> bool:
    """Return whether a share is reached, or not missed at a confidence (exact binomial test)."""
    if trials == 0 or successes >= share * trials:
        return True
    log = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(share)
        + (trials - k) * math.log1p(-share)
        for k in range(successes + 1)
    ]
    return math.fsum(map(math.exp, log)) >= 1 - confidence


@dataclass(frozen=True, slots=True)
class Kind:
    """The gross or the net figures of a cell.

    Attributes:
        published: Windows with a headline; ``held`` of them contain the truth.
        bare: Published without an interval; they count as wrong.
        half_share: Median half width of the published intervals, as a share of the truth.
        times_best: The same over the best possible; NaN with few published figures.
        worst: Largest distance of the truth from the middle of an interval, in half widths.
        withheld_by: Flags of the windows without a headline.
    """

    windows: int
    published: int = 0
    held: int = 0
    bare: int = 0
    half_share: float = math.nan
    times_best: float = math.nan
    worst: float = math.nan
    withheld_by: tuple[tuple[str, int], ...] = ()

    @property
    def coverage(self) -> float:
        """Share of the published figures whose interval contains the truth."""
        return self.held / self.published if self.published else math.nan


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of a cell, and the requirements that it misses.

    ``work_held`` counts net intervals that contain the energy of the work without its heat.
    """

    cell: Cell
    gross: Kind
    net: Kind
    legal: int
    work_held: int
    missed: tuple[str, ...]


def judge(
    cell: Cell, outcomes: Sequence[Outcome], confidence: float = CONFIDENCE, slack: float = 1.0
) -> Row:
    """Return the row of a cell; few windows need a high confidence and a slack of the widths."""
    setup = make_window(cell, np.random.default_rng(0)).setup
    watts = float(np.mean([one.net for one in outcomes])) / cell.seconds
    floors = best.formula(cell, setup, watts)
    gross = _kind(cell, outcomes, floors[0], 0, lambda one: (one.paired.gross, one.gross))
    net = _kind(cell, outcomes, floors[1], 1, lambda one: (one.paired.net, one.net))
    has_net = cell.pairing == "live"
    missed = []
    illegal = [one for one in outcomes if not one.may_be_published]
    for name, kind, least in (("gross", gross, PUBLISHED_GROSS), ("net", net, PUBLISHED_NET)):
        if name == "net" and not has_net:
            continue
        if not not_below(kind.held, kind.published, COVERAGE, confidence):
            missed.append(f"{name} coverage {kind.coverage:.1%} of {kind.published}")
        limit = WIDEST if cell.regime.family in ("constant", "ramp") else WIDEST_ELSEWHERE
        if kind.times_best > limit * slack and cell.regime.family != "rare":
            missed.append(f"{name} width {kind.times_best:.2f} × best, limit {limit}")
        if cell.must_be_published and not not_below(
            kind.published, kind.windows, least, confidence
        ):
            missed.append(
                f"{name} published {kind.published / kind.windows:.0%}, least {least:.0%}"
            )
        shown = sum(getattr(one.paired, name).is_published for one in illegal)
        if shown:
            missed.append(f"{name} published in {shown} of {len(illegal)} windows that may not be")
    work_held = sum(one.paired.net.holds(one.work) for one in outcomes)
    return Row(cell, gross, net, len(outcomes) - len(illegal), work_held, tuple(missed))


def _kind(
    cell: Cell,
    outcomes: Sequence[Outcome],
    floor: float,
    estimate: int,
    of: Callable[[Outcome], tuple[Figure, float]],
) -> Kind:
    figures = [of(one) for one in outcomes]
    shown = [i for i, (figure, _) in enumerate(figures) if figure.is_published]
    withheld = Counter(
        flag
        for i, one in enumerate(outcomes)
        if not figures[i][0].is_published
        for flag in one.paired.flags or ("without a flag",)
    )
    flags = tuple(withheld.most_common(3))
    if not shown:
        return Kind(len(outcomes), withheld_by=flags)
    widths = [
        (figure.low, figure.high, truth)
        for figure, truth in (figures[i] for i in shown)
        if figure.low is not None and figure.high is not None
    ]
    held = sum(figures[i][0].holds(figures[i][1]) for i in shown)
    low, high, truth = np.array(widths).T if widths else np.full((3, 1), math.nan)
    half = (high - low) / 2
    off = np.abs(truth - (high + low) / 2) / np.maximum(half, 1e-12)
    reach = floor
    if cell.regime.family in ("other", "rare"):
        errors = np.array([outcomes[i].plain for i in shown])
        reach = best.measured(errors[:, estimate], errors[:, 2 + estimate], floor)
    return Kind(
        len(outcomes),
        len(shown),
        held,
        len(shown) - len(widths),
        float(np.median(half / np.abs(truth))),
        float(np.median(half)) / reach if len(shown) >= FEW else math.nan,
        float(np.max(off)),
        flags,
    )


HEADER = (
    "| regime | interval | window | pairing | may be shown | gross in | gross shown | gross ± "
    "| × best | worst | net in | net shown | net ± | × best | worst | withheld by | missed |"
)


def markdown(rows: Sequence[Row]) -> str:
    """Return the table of the campaign."""
    return "\n".join([HEADER, "|" + "---|" * (HEADER.count("|") - 1), *map(_line, rows)]) + "\n"


def _line(row: Row) -> str:
    cell = row.cell
    parts = [
        cell.regime.name,
        f"{cell.interval_ms} ms",
        f"{cell.seconds} s",
        cell.pairing,
        f"{row.legal / row.gross.windows:.0%}",
        *_columns(row.gross),
        *_net_columns(row),
        _withheld_by(row) or "–",
        "; ".join(row.missed) or "–",
    ]
    return "| " + " | ".join(parts) + " |"


def _net_columns(row: Row) -> list[str]:
    if row.cell.pairing != "live":
        return ["–"] * 5
    columns = _columns(row.net)
    if row.work_held != row.net.held:
        # Heat: the share that holds the energy of the work alone, without its leakage.
        columns[0] += f" ({row.work_held / row.net.published:.1%} without heat)"
    return columns


def _withheld_by(row: Row) -> str:
    kinds = {"gross": row.gross, "net": row.net}
    texts = {
        name: ", ".join(f"{flag} {count}" for flag, count in kind.withheld_by)
        for name, kind in kinds.items()
        if name == "gross" or row.cell.pairing == "live"
    }
    if len(set(texts.values())) == 1:
        return texts["gross"]
    return "; ".join(f"{name}: {text}" for name, text in texts.items() if text)


def _columns(kind: Kind) -> list[str]:
    shown = f"{kind.published / kind.windows:.0%}"
    if not kind.published:
        return ["–", shown, "–", "–", "–"]
    ratio = "–" if math.isnan(kind.times_best) else f"{kind.times_best:.2f}"
    return [f"{kind.coverage:.1%}", shown, f"{kind.half_share:.2%}", ratio, f"{kind.worst:.1f}"]


def select(patterns: Sequence[str], *, every: bool = False) -> list[Cell]:
    """Return the cells whose name matches one of the patterns; without patterns all cells."""
    return [
        cell
        for cell in cells(every=every)
        if not patterns or any(fnmatch.fnmatch(cell.name, f"*{p}*") for p in patterns)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, print its table, and return the exit status."""
    parser = argparse.ArgumentParser(prog="tests.truth.campaign", description=__doc__)
    parser.add_argument("--windows", type=int, default=1000, help="windows per cell")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--cells", action="append", default=[], help="pattern of names of cells")
    parser.add_argument("--all", action="store_true", help="every interval and length per regime")
    parser.add_argument("--seed", type=int, help="default: drawn now")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    parser.add_argument("--list", action="store_true", help="print the names of the cells only")
    given = parser.parse_args(arguments)
    chosen = select(given.cells, every=given.all)
    if given.list:
        print("\n".join(cell.name for cell in chosen))
        return 0
    if not chosen:
        parser.error("no cell has such a name")
    seed = secrets.randbits(32) if given.seed is None else given.seed
    print(f"seed {seed}, {given.windows} windows in each of {len(chosen)} cells", flush=True)
    began = time.monotonic()
    rows = []
    print(HEADER)
    for row in run(chosen, given.windows, seed, given.jobs):
        rows.append(row)
        print(_line(row), flush=True)
    missed = [row for row in rows if row.missed]
    summary = (
        f"{len(rows) - len(missed)} of {len(rows)} cells hold every required figure; "
        f"seed {seed}, {given.windows} windows each, {time.monotonic() - began:.0f} s"
    )
    print(summary)
    if given.markdown is not None:
        given.markdown.write_text(f"{markdown(rows)}\n{summary}\n", encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
