"""Inject faults into a live daemon: ``nice python -m tools.faults --faults 1000``.

Exit status 1: a run was lost that was reported as stored, an old value was served as live, the
daemon did not come back, or a rule of a kind of faults did not hold.
"""

import argparse
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from . import peers, reloads, requests, sources, stores, surroundings
from .daemon import Daemon
from .kinds import Kind, Tally
from .peer import Peer

SUBJECTS = (sources, stores, peers, requests, reloads, surroundings)


def kinds(pattern: str = "") -> list[Kind]:
    """Return all kinds that are possible here, and whose name has a pattern."""
    every = [kind for subject in SUBJECTS for kind in subject.KINDS]
    is_root = os.geteuid() == 0
    return [
        kind for kind in every if (is_root or not kind.needs_root) and re.search(pattern, kind.name)
    ]


class Campaign:
    """Faults into one daemon, or into one of its own where a kind has another store."""

    def __init__(self, folder: Path, chosen: Sequence[Kind], seed: int) -> None:
        self.tallies = {kind.name: Tally() for kind in chosen}
        self._folder = folder
        self._chance = random.Random(seed)
        self._peer = Peer()
        self.daemon = Daemon(folder / "live", self._peer)
        self._kind_of: dict[str, str] = {}
        self._number = 0

    def inject(self, kind: Kind) -> list[str]:
        """Do one fault, and return what is wrong after it."""
        self._number += 1
        if kind.store is None:
            return self._observe(kind, self.daemon)
        daemon = Daemon(self._folder / str(self._number), self._peer, kind.store)
        tally = self.tallies[kind.name]
        if kind.is_refused:
            tally.injected += 1
            return _refusal(daemon)
        if daemon.wait(lambda: daemon.live and daemon.finished) is None:
            tally.injected += 1
            daemon.stop()
            return [f"it did not start: {daemon.log[-1:]}"]
        # Its start was the fault.
        wrong = self._observe(kind, daemon, must_be_ready=not kind.stays_unready)
        daemon.stop()
        return wrong

    def _observe(self, kind: Kind, daemon: Daemon, *, must_be_ready: bool = True) -> list[str]:
        tally = self.tallies[kind.name]
        finished, told, stale = len(daemon.finished), len(daemon.told), daemon.stale
        destroyed, lost = len(daemon.destroyed), daemon.lost
        daemon.slowest, daemon.peak_bytes = 0.0, 0
        daemon.log = []
        wrong = []
        result = kind.inject(daemon, self._chance)
        if isinstance(result, str):
            wrong.append(result)
        now = time.monotonic()
        seconds = daemon.recovery() if must_be_ready else daemon.wait(lambda: daemon.live > now)
        if seconds is None:
            wrong.append(f"it did not recover: {daemon.log[-1:]}")
        else:
            tally.survived += 1
            tally.recoveries.append(seconds)
            wrong += [text for rule in kind.must if (text := rule(daemon)) is not None]
        tally.injected += 1
        tally.finished += len(daemon.finished) - finished
        tally.told += len(daemon.told) - told
        tally.stale += daemon.stale - stale
        tally.lost += daemon.lost - lost
        tally.destroyed += len(daemon.destroyed) - destroyed - (daemon.lost - lost)
        if daemon is self.daemon:
            self._kind_of.update(dict.fromkeys(daemon.told[told:], kind.name))
        if seconds is None and daemon is self.daemon:
            daemon.kill()
            daemon.start()
            daemon.recovery()
        return wrong

    def end(self) -> None:
        """End the daemon, and count the runs that its store does not have."""
        first = next(iter(self.tallies))
        for run in set(self.daemon.told) - self.daemon.destroyed - self.daemon.stop():
            self.tallies[self._kind_of.get(run, first)].lost += 1


def _refusal(daemon: Daemon) -> list[str]:
    """Return what is wrong with the end of a daemon that may not start on its store."""
    is_live = daemon.wait(lambda: daemon.live) is not None
    has_ended = daemon.process.poll() is not None
    daemon.stop()
    if is_live or not has_ended:
        return ["it did not refuse that store"]
    if len(daemon.log) != 1 or not daemon.log[0].startswith("tegrascope: "):
        return [f"its refusal is not one line: {daemon.log[:3]}"]
    return []


def table(tallies: dict[str, Tally]) -> str:
    """Return one row per kind, and their sum."""
    total = Tally()
    for tally in tallies.values():
        total = Tally(*(a + b for a, b in zip(astuple(total), astuple(tally), strict=True)))
    titles = ("injected", "survived", "finished", "told", "destroyed", "lost", "stale")
    rows = [f"{'kind':42} {' '.join(titles)} recovery p50 / max"]
    for name, tally in [*tallies.items(), ("all", total)]:
        *counts, took = astuple(tally)
        shown = f"{statistics.median(took):.2f} / {max(took):.2f} s" if took else "-"
        columns = (f"{count:{len(title)}}" for title, count in zip(titles, counts, strict=True))
        rows.append(f"{name:42} {' '.join(columns)} {shown}")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Inject faults of all kinds in turn, print a table, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000, metavar="N", help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--only", default="", metavar="REGEX", help="kinds whose name has this")
    parser.add_argument("--list", action="store_true", help="print the kinds, and inject nothing")
    options = parser.parse_args(arguments)
    chosen = kinds(options.only)
    if options.list or not chosen:
        print("\n".join(kind.name for kind in chosen))
        print(len(chosen), "kinds")
        return int(not chosen)
    chance = random.Random(options.seed)
    rounds = range(options.faults // len(chosen) + 1)
    plan = [kind for _ in rounds for kind in chance.sample(chosen, len(chosen))]
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tegrascope-faults-") as name:
        campaign = Campaign(Path(name), chosen, options.seed)
        if campaign.daemon.recovery() is None:
            parser.error("the daemon is not ready: " + " | ".join(campaign.daemon.log[-5:]))
        for kind in plan[: options.faults]:
            for text in campaign.inject(kind):
                failures.append(f"{kind.name}: {text}")
                print(failures[-1], file=sys.stderr, flush=True)
        campaign.end()
    print(table(campaign.tallies))
    print(f"{len(chosen)} kinds, {len(failures)} failures")
    for text in failures:
        print(" ", text)
    has_lost = any(tally.lost or tally.stale for tally in campaign.tallies.values())
    return int(has_lost or bool(failures))


if __name__ == "__main__":
    sys.exit(main())
