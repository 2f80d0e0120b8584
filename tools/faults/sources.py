"""Faults of tegrastats, of the program of a workload, of other children, and of the daemon."""

import random
import signal
import time
from collections.abc import Sequence

from .daemon import Daemon
from .kinds import Act, Kind, answers, exports, is_quiet, loses_nothing, runs_again, stays_small

SOURCE_MODES = (
    *("exit 0", "exit 1", "half", "silent", "closed", "block", "garbage", "nul", "huge", "endless"),
    *("words", "cores", "cut", "board", "implausible", "utf-16", "flood", "errors"),
)
PROGRAM_MODES = ("crash", "segv", "hang", "garbage", "endless", "errors", "fork", "orphan", "group")
SIGNALS = ("SIGTERM", "SIGKILL", "SIGSEGV", "SIGINT", "SIGHUP", "SIGSTOP")


def play(what: str, mode: str) -> Act:
    """Return what lets tegrastats or the program of the runs do something else for a while."""

    def act(daemon: Daemon, chance: random.Random) -> None:
        daemon.play(what, mode)
        if what == "program":
            daemon.wait_for_runs(1)
        else:
            time.sleep(chance.choice((0.3, 1, 8)) if "exit" in mode else chance.uniform(0.3, 2))
        daemon.play(what, "good")

    return act


def send(word: str, name: str, seconds: Sequence[float] = ()) -> Act:
    """Return what sends a process signal to a child, and SIGCONT after one of these times."""

    def act(daemon: Daemon, chance: random.Random) -> None:
        daemon.signal_child(word, signal.Signals[name])
        if seconds:
            time.sleep(chance.choice(seconds))
            daemon.signal_child(word, signal.SIGCONT)

    return act


def stop_daemon(daemon: Daemon, chance: random.Random) -> None:
    """Stop the daemon for a while."""
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(chance.choice((0.5, 2, 6, 20)))
    daemon.process.send_signal(signal.SIGCONT)


def kill_daemon(daemon: Daemon, chance: random.Random) -> None:
    """Kill the daemon at any moment and start it again."""
    time.sleep(chance.uniform(0, 1))
    daemon.kill()
    daemon.start()


def end_daemon(daemon: Daemon, chance: random.Random) -> str | None:
    """End the daemon by SIGTERM at any moment and start it again."""
    time.sleep(chance.uniform(0, 1))
    has_ended = daemon.end()
    daemon.start()
    return None if has_ended else "SIGTERM did not end it in 20 s"


KINDS = (
    *(Kind(f"tegrastats {name}", send("source.py", name)) for name in SIGNALS),
    Kind("tegrastats stopped, continued", send("source.py", "SIGSTOP", (0.5, 2, 4))),
    *(
        Kind(f"tegrastats {mode}", play("source", mode), (stays_small, answers))
        for mode in SOURCE_MODES
    ),
    *(
        Kind(f"workload {mode}", play("program", mode), (stays_small, runs_again))
        for mode in PROGRAM_MODES
    ),
    Kind("workload stopped", send("program.py", "SIGSTOP"), (runs_again,)),
    Kind("OTLP child SIGKILL", send("otlp", "SIGKILL"), (exports, is_quiet)),
    Kind("OTLP child stopped, continued", send("otlp", "SIGSTOP", (1, 5)), (exports, is_quiet)),
    Kind("daemon stopped, continued", stop_daemon, (runs_again,)),
    Kind("daemon killed", kill_daemon, (loses_nothing,)),
    Kind("daemon ended", end_daemon, (loses_nothing,)),
)
