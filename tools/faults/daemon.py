"""Inject faults into a live daemon: ``nice python -m tools.faults --faults 1000``.

A stand-in of tegrastats prints its own clock as the power of a rail, so that the age of every
scraped value is known. Exit status 1: a finished run was lost, a stale value was served as live, or
the daemon did not come back.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path

# A value is live for three seconds after its line; a busy machine may take as long again.
STALE_SECONDS = 6.0

# Both do what a file says, whose name is their first argument.
TEGRASTATS = r"""
import os, signal, sys, time
def line(rail="VDD_IN"):
    milliwatts = int(time.monotonic() * 1000) % 10**9
    zones = b" ".join(b"z%d@40C" % n for n in range(60))  # as long as a real line: pipes fill up
    return b"RAM 1/2MB CPU [5%%@729] %s %s %dmW/1mW\n" % (zones, rail.encode(), milliwatts)
def put(data):
    while data:
        data = data[os.write(1, data):]
while True:
    mode, good = open(sys.argv[1]).read(), line()
    if mode in ("silent", "closed"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if mode == "closed": os.close(1)
        time.sleep(600)
    if mode == "half": put(good[:30])
    if mode in ("half", "exit 0", "exit 1"): sys.exit(int(mode == "exit 1"))
    if mode == "block": time.sleep(2)
    if mode == "errors": os.write(2, b"error\n" * 10_000)
    put({
        "garbage": os.urandom(2000) + b"\n", "nul": bytes(5000) + b"\n",
        "huge": b"RAM " * 300_000 + b"\n", "endless": b"x" * 1_000_000,
        "words": b"Z1 " * 20_000 + b"\n", "block": good * 20, "flood": good * 300,
        "cores": b"RAM 1/2MB CPU [" + b"5%," * 20_000 + b"5%]\n",
        "cut": good[: int(time.monotonic() * 10) % len(good)] + b"\n", "board": line("VDD_CPU"),
        "implausible": b"RAM 5/2MB EMC_FREQ 1 tj@-300C cpu@9999C SWAP 7/3MB\n",
        "utf-16": good.decode().encode("utf-16"),
    }.get(mode, good))
    time.sleep(0.1)
"""
SOURCE_MODES = (
    *("exit 0", "exit 1", "half", "silent", "closed", "block", "garbage", "nul", "huge", "endless"),
    *("words", "cores", "cut", "board", "implausible", "utf-16", "flood", "errors"),
)
PROGRAM = r"""
import os, signal, sys, time
mode = open(sys.argv[1]).read()
time.sleep(0.1)
if mode == "crash": sys.exit(3)
if mode == "segv": os.kill(os.getpid(), signal.SIGSEGV)
if mode == "hang": signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)
if mode == "garbage": os.write(1, os.urandom(1_000_000))
if mode == "endless": os.write(1, b"x" * 3_000_000)
if mode == "errors": os.write(2, b"error\n" * 300_000)
if mode == "fork" and os.fork() == 0: time.sleep(20); os._exit(0)
if mode == "orphan": os.kill(os.getppid(), signal.SIGKILL)
if mode == "group": os.killpg(0, signal.SIGKILL)
"""
PROGRAM_MODES = ("crash", "segv", "hang", "garbage", "endless", "errors", "fork", "orphan", "group")
SIGNALS = ("SIGTERM", "SIGKILL", "SIGSEGV", "SIGINT", "SIGHUP", "SIGSTOP")
BAD_FILES = ("telemetry: [", "telemetri: {}", "\0\1\2", "workloads: 3", "")
CONFIG = """
telemetry: {source: tegrastats, interval: 100ms, tegrastats: {socket: null,
   command: [PYTHON, -S, FOLDER/source.py, FOLDER/source]}}
workloads:
- {name: w, command: PYTHON -S FOLDER/program.py FOLDER/program, device: external, baseline: 0s,
   warm_up: 0s, duration: 100ms, every: 1s, timeout: 3s}
""".replace("PYTHON", sys.executable)


@dataclass
class Tally:
    """What happened to one kind of faults."""

    injected: int = 0
    survived: int = 0
    finished: int = 0
    lost: int = 0
    stale: int = 0
    recoveries: list[float] = field(default_factory=list)


class Daemon:
    """``tegrascope run`` with a stand-in of tegrastats, and a thread that scrapes it."""

    def __init__(self, folder: Path, before: str = "true") -> None:
        """Start; a shell runs ``before`` where the store is, and if it mounts, by itself."""
        self.folder, self.state, self.config = folder, folder / "state", folder / "config.yaml"
        self.finished: list[str] = []  # runs that the log reports
        self.stale = 0
        self.live = 0.0  # when the value was printed that was live last
        self.log: list[str] = []
        self.state.mkdir(parents=True)
        for what, text in (("source", TEGRASTATS), ("program", PROGRAM)):
            (folder / f"{what}.py").write_text(text)
            self.play(what, "good")
        self.good_config = CONFIG.replace("FOLDER", str(folder))
        self.config.write_text(self.good_config)
        own = ["unshare", "--mount"] if "mount" in before else []
        self._shell = [*own, "sh", "-c", f'cd "$0" && {{ {before}; cd /; exec "$@"; }}']
        self.start()
        self._ended = threading.Event()
        threading.Thread(target=self._scrape, daemon=True).start()

    def play(self, what: str, mode: str) -> None:
        """Let a stand-in do something else; it never reads half a word."""
        (self.folder / "new").write_text(mode)
        (self.folder / "new").replace(self.folder / what)

    def start(self) -> None:
        """Start the daemon, also again after its end."""
        self.url = ""
        command = [sys.executable, "-m", "tegrascope", "run", "-c", str(self.config)]
        command += ["--listen", "127.0.0.1:0", "--state-dir", str(self.state)]
        shell = [*self._shell, str(self.state)]
        self.process = subprocess.Popen([*shell, *command], stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        with process:
            for line in process.stderr or ():
                self.log = [*self.log[-30:], line.rstrip()]
                if found := re.search(r"page +(http\S+)", line):
                    self.url = found[1]
                if found := re.search(r": (?:ok|failed|timeout)\b.* run (\S+)", line):
                    self.finished.append(found[1])

    def get(self, path: str) -> str:
        """Return a page; nothing if its status is an error, or while nobody serves."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return str(answer.read().decode())
        except (OSError, ValueError, http.client.HTTPException):
            return ""

    def _scrape(self) -> None:
        power = re.compile(r'^tegra_rail_power_watts\{[^}]*rail="VDD_IN"[^}]*\} (\S+)', re.M)
        up = re.compile(r"^tegrascope_source_up\{[^}]*\} 1", re.M)
        while not self._ended.wait(0.05):
            begin = time.monotonic()
            page = self.get("metrics")
            end = time.monotonic()
            if (value := power.search(page)) and up.search(page):
                self.live = float(value[1]) + begin // 1e6 * 1e6
                # A request that met a frozen daemon may have been answered before it.
                self.stale += (end if end - begin < 1 else begin) - self.live > STALE_SECONDS

    def wait(self, what: Callable[[], object], seconds: float = 60.0) -> float | None:
        """Wait until something is true; return how long it took, or None if it does not happen."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds and self.process.poll() is None:
            if what():
                return time.monotonic() - begin
            time.sleep(0.05)
        return None

    def recovery(self) -> float | None:
        """Return after which time it is ready, with a live value that was printed after now."""
        now = time.monotonic()
        return self.wait(lambda: self.live > now and self.get("readyz").startswith("ready"))

    def wait_for_runs(self, count: int) -> None:
        """Wait until more runs have finished."""
        count += len(self.finished)
        self.wait(lambda: len(self.finished) >= count, 20)

    def signal_source(self, number: int) -> None:
        """Send a process signal to the stand-in of tegrastats, if it runs."""
        for path in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                for pid in path.read_text().split():
                    if "source.py" in Path(f"/proc/{pid}/cmdline").read_text():
                        os.kill(int(pid), number)

    def stop(self) -> set[str]:
        """End the daemon and return the runs of its store."""
        self._ended.set()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        command = [sys.executable, "-m", "tegrascope", "runs", "export", "--state-dir"]
        done = subprocess.run([*command, self.state], capture_output=True, text=True, check=False)
        return {json.loads(line)["run_id"] for line in done.stdout.splitlines()}


Act = Callable[[Daemon, random.Random], object]


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


def send(what: str, name: str, seconds: Sequence[float] = ()) -> Act:
    """Return what sends a process signal, and SIGCONT after one of these times."""

    def act(daemon: Daemon, chance: random.Random) -> None:
        signal_it = daemon.signal_source if what == "source" else daemon.process.send_signal
        signal_it(signal.Signals[name])
        if seconds:
            time.sleep(chance.choice(seconds))
            signal_it(signal.SIGCONT)

    return act


def kill_daemon(daemon: Daemon, chance: random.Random) -> None:
    """Kill the daemon at any moment and start it again."""
    time.sleep(chance.uniform(0, 1))
    daemon.process.kill()
    daemon.process.wait()
    daemon.start()


def reload(text: str) -> Act:
    """Return what lets the daemon reload a bad configuration, and the good one after it."""

    def act(daemon: Daemon, _: random.Random) -> None:
        for one in (text, daemon.good_config):
            daemon.config.unlink() if not one else daemon.config.write_text(one)
            daemon.process.send_signal(signal.SIGHUP)
            time.sleep(1)

    return act


LIVE: dict[str, Act] = {
    **{f"tegrastats {name}": send("source", name) for name in SIGNALS},
    "tegrastats stopped, continued": send("source", "SIGSTOP", (0.5, 2, 4)),
    **{f"tegrastats {mode}": play("source", mode) for mode in SOURCE_MODES},
    **{f"workload {mode}": play("program", mode) for mode in PROGRAM_MODES},
    "daemon stopped, continued": send("daemon", "SIGSTOP", (0.5, 2, 6, 20)),
    "daemon killed": kill_daemon,
    **{f"reload {text!r}": reload(text) for text in BAD_FILES},
}
# What a daemon of its own finds as its store.
STORES = {
    "start: damaged store": "yes no database | head -c 20000 >tegrascope.db",
    "start: empty file as store": ": >tegrascope.db",
    "start: full store": "mount -t tmpfs -o size=256k none . && cd . && head -c 1m /dev/zero >x",
    "start: read-only store": "mount -t tmpfs -o ro,size=1m none .",
    "disk full, then free": "mount -t tmpfs -o size=8m none .",
}


def run_store(daemon: Daemon, kind: str, tally: Tally) -> float | None:
    """Return after which time a daemon on a bad store had telemetry and a run; end it."""
    seconds = daemon.wait(lambda: daemon.live and daemon.finished)
    if kind.startswith("disk") and seconds is not None:
        filler = Path(f"/proc/{daemon.process.pid}/root{daemon.state}/filler")
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        daemon.wait_for_runs(3)
        filler.unlink()
        seconds = daemon.recovery()
        known = daemon.get("api/v1/runs?limit=1000")
        tally.lost += sum(run not in known for run in daemon.finished[:-1])
    tally.finished += len(daemon.finished)
    tally.stale += daemon.stale
    daemon.stop()
    return seconds


def table(tallies: dict[str, Tally]) -> str:
    """Return one row per kind, and their sum."""
    total = Tally()
    for tally in tallies.values():
        total = Tally(*(a + b for a, b in zip(astuple(total), astuple(tally), strict=True)))
    rows = [f"{'kind':30} injected survived finished lost stale recovery p50 / max"]
    for kind, tally in [*tallies.items(), ("all", total)]:
        *counts, took = astuple(tally)
        shown = f"{statistics.median(took):.2f} / {max(took):.2f} s" if took else "-"
        rows.append(f"{kind:30} {'{:8} {:8} {:8} {:4} {:5}'.format(*counts)} {shown}")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Inject faults of all kinds in turn, print a table, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=1000, metavar="N", help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--only", default="", metavar="REGEX", help="kinds whose name has this")
    options = parser.parse_args(arguments)
    stores = [kind for kind, text in STORES.items() if os.geteuid() == 0 or "mount" not in text]
    kinds = [kind for kind in (*LIVE, *stores) if re.search(options.only, kind)]
    chance, tallies = random.Random(options.seed), {kind: Tally() for kind in kinds}
    kind_of: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="tegrascope-faults-") as name:
        daemon = Daemon(Path(name) / "live")
        if daemon.recovery() is None:
            parser.error("the daemon is not ready: " + " | ".join(daemon.log[-5:]))
        rounds = range(options.faults // len(kinds) + 1)
        plan = [kind for _ in rounds for kind in chance.sample(kinds, len(kinds))]
        for number, kind in enumerate(plan[: options.faults]):
            tally, runs, stale = tallies[kind], len(daemon.finished), daemon.stale
            target = daemon if kind in LIVE else Daemon(Path(name) / str(number), STORES[kind])
            if target is daemon:
                LIVE[kind](daemon, chance)
                seconds = daemon.recovery()
                tally.finished += len(daemon.finished) - runs
            else:
                seconds = run_store(target, kind, tally)
            tally.injected += 1
            tally.survived += seconds is not None
            tally.stale += daemon.stale - stale
            tally.recoveries += [] if seconds is None else [seconds]
            if seconds is None:
                print(kind, "was not survived:", target.log[-1:], file=sys.stderr, flush=True)
            kind_of.update(dict.fromkeys(daemon.finished[runs:], kind))
            if daemon.process.poll() is not None:
                daemon.start()
        for run in set(daemon.finished) - daemon.stop():
            tallies[kind_of.get(run, kinds[0])].lost += 1
    print(table(tallies))
    return int(any(t.lost or t.stale or t.survived < t.injected for t in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
