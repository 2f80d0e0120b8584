"""Faults of peers: the OTLP receiver, a page of metrics that is scraped, and a model server."""

import random

from .daemon import Daemon
from .kinds import Act, Kind, answers, exports, is_quiet, pause, runs_again, stays_small
from .peer import MODES

# A run of 2 s with a timeout of 12 s, and the end of its worker.
RUN_SECONDS = 30.0


def receive(mode: str) -> Act:
    """Return what lets the OTLP receiver misbehave for a few seconds."""

    def act(daemon: Daemon, _: random.Random) -> None:
        daemon.peer.play(mode)
        pause(daemon, 6)
        daemon.peer.play("good")

    return act


def ask(workload: str, mode: str) -> Act:
    """Return what runs a workload whose peer misbehaves."""

    def act(daemon: Daemon, _: random.Random) -> str | None:
        daemon.peer.play(mode)
        run_id = daemon.run_now(workload)
        if not run_id:
            daemon.peer.play("good")
            return f"{workload} could not be started"
        took = daemon.wait(lambda: run_id in daemon.finished, RUN_SECONDS)
        daemon.peer.play("good")
        return None if took is not None else f"the run did not end in {RUN_SECONDS:.0f} s"

    return act


_RULES = (stays_small, answers, is_quiet)
KINDS = (
    *(Kind(f"OTLP receiver {mode}", receive(mode), (*_RULES, exports)) for mode in MODES),
    *(Kind(f"scraped page {mode}", ask("scrape", mode), (*_RULES, runs_again)) for mode in MODES),
    *(Kind(f"model server {mode}", ask("server", mode), (*_RULES, runs_again)) for mode in MODES),
)
