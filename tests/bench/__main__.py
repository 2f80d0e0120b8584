"""``make bench``: every path against its floors, and every number of it against the truth."""

import argparse
import gc
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from tegrascope import frames, parse_line
from tegrascope.parsers.tegrastats.line import LineParser

from . import corpus, floors, memory
from .lines import LAYOUTS, Line, generate, interleave, redraw, variety
from .rounds import Contender, Ratio, play, ratio
from .truth import faults, is_right, rows_of

GIGA, MEGA, MEBI = 10**9, 10**6, 2**20

LIVE_LEAST = 0.30
REDRAWN_LEAST = 0.20
BULK_LEAST = 1.0
TWO_CORES_LEAST = 1.7
MOST_MEMORY = 600 * MEBI

# The slow ones need fewer lines to be timed as well.
_SLOW_SHARE = 5
_LARGE = 8


@dataclass
class Verdicts:
    """What was required, and whether it is so."""

    missed: int = 0

    def tell(self, good: bool, words: str) -> None:
        """Print one line with its mark."""
        self.missed += not good
        print(f"  {'good' if good else 'MISSED':7}{words}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate, time, check, and say what was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000, help="to generate (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of timing (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the lines (%(default)s)")
    parser.add_argument(
        "--big",
        type=float,
        default=0.2,
        metavar="GIGABYTES",
        help="size of the log that memory is measured with (%(default)s)",
    )
    parser.add_argument("--scratch", type=Path, help="folder for the logs, some hundred MB")
    options = parser.parse_args(arguments)

    lines = generate(options.lines, options.seed)
    mixed = interleave(lines, options.seed)
    texts = [line.text for line in lines]
    # What stays for good is not looked through again whenever garbage is collected.
    gc.collect()
    gc.freeze()
    verdicts = Verdicts()
    _tell_lines(lines)
    with tempfile.TemporaryDirectory(prefix="tegrascope-bench-", dir=options.scratch) as folder:
        log, mixed_log, large = (Path(folder) / name for name in ("a.log", "b.log", "c.log"))
        memory.write_log(log, texts, 0)
        memory.write_log(mixed_log, [line.text for line in mixed], 0)
        memory.write_log(large, texts, _LARGE * log.stat().st_size)
        _speed(texts, [line.text for line in mixed], log, mixed_log, large, options, verdicts)
        _right(lines, log, mixed, mixed_log, verdicts)
        _corpus(verdicts)
        _memory(Path(folder) / "big.log", texts, options.big, verdicts)
    return 1 if verdicts.missed else 0


def _tell_lines(lines: Sequence[Line]) -> None:
    size = sum(len(line.text) + 1 for line in lines)
    at_work = sum(line.dla for line in lines) / len(lines)
    print(
        f"{len(lines):,} lines of {len(LAYOUTS)} layouts, {size / MEGA:.1f} MB, "
        f"a DLA core at work in {at_work:.1%}; Python {platform.python_version()}, "
        f"{os.cpu_count()} cores"
    )
    made = [
        variety([line.text for line in lines if line.layout == layout.name]) for layout in LAYOUTS
    ]
    print("\nUnlike tokens among those of 1000 lines, by kind")
    _tell_variety(
        "made, mean of the layouts",
        {
            kind: mean(one[kind] for one in made if kind in one)
            for kind in sorted({kind for one in made for kind in one})
        },
    )
    for log in corpus.logs():
        texts = corpus.texts(log)
        if "orin" in log.name and len(texts) >= 600:
            _tell_variety(log.name.removesuffix(".log"), variety(texts))


def _tell_variety(name: str, shares: dict[str, float]) -> None:
    print(f"  {name:38}" + "".join(f"{kind} {share:.2f}  " for kind, share in shares.items()))


def _speed(
    texts: list[str],
    mixed: list[str],
    log: Path,
    mixed_log: Path,
    large: Path,
    options: argparse.Namespace,
    verdicts: Verdicts,
) -> None:
    """Time all contenders in turns."""
    some, count = texts[: len(texts) // _SLOW_SHARE], len(texts)

    def over(run: Callable[[list[str]], int], lines: list[str], name: str) -> Contender:
        return Contender(name, lambda: run(lines), len(lines), len(lines))

    def bulk(path: Path, lines: int, cores: int, name: str) -> Contender:
        return Contender(name, lambda: len(frames.read_log([path], cores=cores)), lines, lines)

    floor = over(floors.whole_line, texts, "one expression: the floor")
    live = over(_live, texts, "live: a Sample")
    chance = random.Random(options.seed)
    drawn = [redraw(text, chance) for text in some]
    drawn_floor = over(floors.whole_line, drawn, "one expression, values drawn anew")
    drawn_live = over(_live, drawn, "live, values drawn anew")
    one_core = bulk(log, count, 1, "bulk: a DataFrame, one core")
    one = bulk(large, _LARGE * count, 1, f"bulk, {_LARGE} times the lines, one core")
    two = bulk(large, _LARGE * count, 2, f"bulk, {_LARGE} times the lines, two cores")
    apart = Contender(
        "two readers apart, one core each",
        lambda: _apart(large, _LARGE * count),
        2 * _LARGE * count,
        2 * _LARGE * count,
    )
    contenders = [
        over(floors.split, texts, "str.split"),
        floor,
        over(floors.every_number, texts, "one expression, every number"),
        over(floors.ten_searches, some, "ten searches per line"),
        live,
        over(_live, mixed, "live, boards interleaved"),
        drawn_floor,
        drawn_live,
        over(_record, texts, "record: a line of JSON"),
        one_core,
        bulk(mixed_log, count, 1, "bulk, boards interleaved, one core"),
        one,
        two,
        apart,
    ]
    play(contenders, options.rounds)
    print(f"\nLines a second of one core's time, {options.rounds} rounds")
    print(f"  {'':36}{'best':>10}{'median':>11}   x floor (worst to best round)")
    for contender in contenders:
        if contender in (one, two, apart):
            continue
        rates = contender.rates()
        print(
            f"  {contender.name:36}{max(rates):>10,.0f}{median(rates):>11,.0f}"
            f"   {_shown(ratio(contender, floor))}"
        )
    print("\nLines a second by the clock on the wall")
    for contender in (one, two, apart):
        rates = contender.rates(wall=True)
        print(f"  {contender.name:36}{max(rates):>10,.0f}{median(rates):>11,.0f}")
    print("\nRequired")
    for words, found, least in (
        ("live, of the floor", ratio(live, floor), LIVE_LEAST),
        ("live, values drawn anew, of their floor", ratio(drawn_live, drawn_floor), REDRAWN_LEAST),
        ("bulk on one core, of the floor", ratio(one_core, floor), BULK_LEAST),
        ("bulk on two cores, of one", ratio(two, one, wall=True), TWO_CORES_LEAST),
    ):
        verdicts.tell(found.middle >= least, f"{words}: {_shown(found)}, at least {least}")
    print(
        "         two readers that know nothing of each other, of one: "
        f"{_shown(ratio(apart, one, wall=True))}, which is what this machine gives"
    )


def _shown(found: Ratio) -> str:
    return f"{found.middle:.2f} ({found.least:.2f} to {found.most:.2f})"


def _live(lines: Sequence[str]) -> int:
    parse = LineParser().parse  # which remembers nothing of the round before
    for line in lines:
        parse(line)
    return len(lines)


def _apart(log: Path, lines: int) -> int:
    """Read a log twice at once, in two processes that share nothing."""
    code = (
        "import sys; from pathlib import Path; from tegrascope import frames; "
        "sys.exit(len(frames.read_log([Path(sys.argv[1])], cores=1)) != int(sys.argv[2]))"
    )
    argv = [sys.executable, "-c", code, str(log), str(lines)]
    readers = [subprocess.Popen(argv) for _ in range(2)]
    return sum(lines for reader in readers if reader.wait() == 0)


def _record(lines: Sequence[str]) -> int:
    for line in lines:
        parse_line(line).model_dump_json()
    return len(lines)


def _right(
    lines: Sequence[Line],
    log: Path,
    mixed: Sequence[Line],
    mixed_log: Path,
    verdicts: Verdicts,
) -> None:
    """Hold every number that was read against the one that was printed."""
    for name, order in (("", lines), (", interleaved", mixed)):
        right = sum(is_right(parse_line(line.text), line) for line in order)
        verdicts.tell(
            right == len(order), f"live{name}: {right:,} of {len(order):,} lines right in all"
        )
    for name, order, path, cores in (
        ("one core", lines, log, 1),
        ("two cores, interleaved", mixed, mixed_log, 2),
    ):
        frame = frames.read_log([path], cores=cores)
        wrong = faults(frame, rows_of(order))
        told = "; ".join(wrong) or f"each of {frame.size:,} cells right"
        verdicts.tell(not wrong, f"bulk, {name}: {told}")


def _corpus(verdicts: Verdicts) -> None:
    """Hold the paths against one another on recorded logs."""
    if not corpus.logs():
        print("  skipped recorded logs: no ../shared/corpus/tegrastats beside this checkout")
        return
    count, wrong = corpus.compare()
    told = "; ".join(wrong[:5]) or "live and bulk agree"
    verdicts.tell(not wrong, f"{count:,} records of {len(corpus.logs())} recorded logs: {told}")


def _memory(log: Path, texts: Sequence[str], gigabytes: float, verdicts: Verdicts) -> None:
    """Turn a large log into Parquet, watched."""
    lines = memory.write_log(log, texts, int(gigabytes * GIGA))
    parsed = memory.parse(log, lines)
    verdicts.tell(
        parsed.rows == lines and parsed.peak_bytes < MOST_MEMORY,
        f"parse -f parquet of {parsed.log_bytes / GIGA:.2f} GB: {parsed.rows:,} of {lines:,} rows, "
        f"{parsed.peak_bytes / MEBI:.0f} MiB at most, under {MOST_MEMORY // MEBI}; "
        f"{parsed.seconds:.1f} s, {lines / parsed.seconds:,.0f} lines/s, "
        f"{parsed.parquet_bytes / MEGA:.1f} MB written",
    )


if __name__ == "__main__":
    sys.exit(main())
