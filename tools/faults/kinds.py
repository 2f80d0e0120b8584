"""What a kind of faults is, and the rules that a table of kinds names."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .daemon import Daemon

# Of all processes of the daemon together; in good times they have about 150 MiB.
MOST_BYTES = 450 << 20
# A scrape of Prometheus gives up after ten seconds by default.
MOST_SECONDS = 10.0
RECOVERY_SECONDS = 60.0

Act = Callable[[Daemon, random.Random], "str | None"]
Rule = Callable[[Daemon], "str | None"]


@dataclass(frozen=True)
class Kind:
    """One row of a table.

    Attributes:
        inject: Does the fault and undoes it; a text that it returns is a failure.
        must: Rules that hold after it; each returns what is wrong, or None.
        needs_root: Whether it needs the right to mount, or to enter a namespace.
        store: Shell commands that make the store of a daemon of its own; None for the one of all.
        is_refused: Whether the daemon must refuse to start on that store, with one line.
        stays_unready: Whether the store cannot be written, so that the daemon serves telemetry, and
            says that it is not ready.
    """

    name: str
    inject: Act
    must: tuple[Rule, ...] = ()
    needs_root: bool = False
    store: str | None = None
    is_refused: bool = False
    stays_unready: bool = False


@dataclass
class Tally:
    """What happened to one kind of faults."""

    injected: int = 0
    survived: int = 0
    finished: int = 0
    told: int = 0
    destroyed: int = 0
    lost: int = 0
    stale: int = 0
    recoveries: list[float] = field(default_factory=list)


def nothing(_: Daemon, __: random.Random) -> None:
    """Do nothing: the store of the daemon is the fault."""


def stays_small(daemon: Daemon) -> str | None:
    """All processes of the daemon together stay below a bound."""
    if daemon.peak_bytes > MOST_BYTES:
        return f"the daemon and its children had {daemon.peak_bytes >> 20} MiB"
    return None


def answers(daemon: Daemon) -> str | None:
    """No scrape waits long."""
    if daemon.slowest > MOST_SECONDS:
        return f"a scrape took {daemon.slowest:.1f} s"
    return None


def is_quiet(daemon: Daemon) -> str | None:
    """Nothing raised an exception that nobody expected."""
    if any("Traceback" in line for line in daemon.log):
        return "the log has a traceback: " + daemon.log[-1][:200]
    return None


def sees_processes(daemon: Daemon) -> str | None:
    """The use by processes is exported."""

    def is_there() -> bool:
        page = daemon.get("metrics")
        return 'source_up{source="processes"} 1' in page and "\ntegra_process_" in page

    if daemon.wait(is_there, RECOVERY_SECONDS / 4) is None:
        return "the processes are not exported"
    return None


def exports(daemon: Daemon) -> str | None:
    """The OTLP receiver gets pages again."""
    before = daemon.peer.good_pages
    if daemon.wait(lambda: daemon.peer.good_pages > before, RECOVERY_SECONDS) is None:
        return "no page came to the OTLP receiver"
    return None


def loses_nothing(daemon: Daemon) -> str | None:
    """Every run that was reported as stored is in the answers of the API."""
    missing: set[str] = set()

    def is_complete() -> bool:
        nonlocal missing
        told = set(daemon.told)
        missing = told - daemon.destroyed - daemon.stored()
        return not missing

    # A run is in the log a moment after it is stored, but a new file is made while others read.
    if daemon.wait(is_complete, 10) is None:
        return f"{len(missing)} runs are not in the API, such as {min(missing, default='none')}"
    return None


def runs_again(daemon: Daemon) -> str | None:
    """Another run ends."""
    return None if daemon.wait_for_runs(1) else "no run ended after it"


def pause(daemon: Daemon, seconds: float) -> None:
    """Let a fault last, as long as the daemon lives."""
    end = time.monotonic() + seconds
    daemon.wait(lambda: time.monotonic() > end, seconds + 1)
