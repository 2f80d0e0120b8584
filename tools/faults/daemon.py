"""The daemon under test, its stand-ins, and what is observed of it."""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .peer import Peer

# A value is live for three seconds after its line; a busy machine may take as long again.
STALE_SECONDS = 6.0
# Between two looks at the memory of all processes of the daemon.
MEMORY_SECONDS = 0.5

# Both do what a file says, whose name is their first argument. tegrastats prints its own clock as
# the power of a rail, so that the age of every scraped value is known.
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
# The two workloads that ask a peer are started by their faults only.
CONFIG = """
telemetry: {source: tegrastats, interval: 100ms, processes: {top: 10}, tegrastats: {socket: null,
   command: [PYTHON, -S, FOLDER/source.py, FOLDER/source]}}
otlp: {endpoint: "PEER", interval: 1s}
workloads:
- {name: w, command: PYTHON -S FOLDER/program.py FOLDER/program, device: external, baseline: 0s,
   warm_up: 0s, duration: 100ms, every: 1s, timeout: 3s}
- {name: scrape, scrape: {url: "PEER/metrics", metric: tokens_total, timeout: 2s, interval: 500ms},
   unit: token, device: gpu, duration: 2s, timeout: 12s}
- {name: server, server: {url: "PEER/v1", model: m, prompts: [a], max_tokens: 2, timeout: 2s},
   device: cpu, duration: 2s, baseline: 0s, warm_up: 0s, timeout: 12s}
""".replace("PYTHON", sys.executable)
_FINISHED = re.compile(r": (?:ok|failed|timeout)\b.* run (\S+)")


class Daemon:
    """``tegrascope run`` with a stand-in of tegrastats, and a thread that scrapes it.

    Attributes:
        told: Ids of the runs that the log reports as finished and stored.
        finished: Ids of all finished runs.
        destroyed: Ids of those runs that are gone with damage of the store.
        lost: How many of them the damage did not reach.
        stale: Scrapes so far that had an old value as a live one.
        live: When the value was printed that was live last.
        slowest: Seconds of the slowest scrape since it was set to 0.
        peak_bytes: Most memory of all processes of the daemon since it was set to 0.
        clock_seconds: How far the monotonic clock of the daemon is ahead of ours.
    """

    def __init__(self, folder: Path, peer: Peer, before: str = "true") -> None:
        """Start; a shell runs ``before`` where the store is, and if it mounts, by itself."""
        self.folder, self.state, self.config = folder, folder / "state", folder / "config.yaml"
        self.peer = peer
        self.told: list[str] = []
        self.finished: list[str] = []
        self.destroyed: set[str] = set()
        self.lost = 0
        self.stale = 0
        self.live = self.slowest = self.clock_seconds = 0.0
        self.peak_bytes = 0
        self.log: list[str] = []
        self.state.mkdir(parents=True)
        for what, text in (("source", TEGRASTATS), ("program", PROGRAM)):
            (folder / f"{what}.py").write_text(text)
            self.play(what, "good")
        self.good_config = CONFIG.replace("FOLDER", str(folder)).replace("PEER", peer.url)
        self.config.write_text(self.good_config)
        own = ["unshare", "--mount"] if "mount" in before else []
        self._shell = [*own, "sh", "-c", f'cd "$0" && {{ {before}; cd /; exec "$@"; }}']
        self.start()
        self._ended = threading.Event()
        for observe in (self._scrape, self._weigh):
            threading.Thread(target=observe, daemon=True).start()

    @property
    def database(self) -> Path:
        """The file of the run store."""
        return self.state / "tegrascope.db"

    def play(self, what: str, mode: str) -> None:
        """Let a stand-in do something else; it never reads half a word."""
        (self.folder / "new").write_text(mode)
        (self.folder / "new").replace(self.folder / what)

    def start(self, within: Sequence[str] = (), env: Mapping[str, str] | None = None) -> None:
        """Start the daemon, also again after its end, in the surroundings that a program makes."""
        self.url = ""
        command = [*within, sys.executable, "-m", "tegrascope", "run", "-c", str(self.config)]
        command += ["--listen", "127.0.0.1:0", "--state-dir", str(self.state)]
        shell = [*self._shell, str(self.state)]
        self.process = subprocess.Popen([*shell, *command], stderr=subprocess.PIPE, env=env)
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        with process:
            for data in process.stderr or ():
                line = data.decode("utf-8", "replace").rstrip()
                self.log = [*self.log[-1000:], line]
                if found := re.search(r"page +(http\S+)", line):
                    self.url = found[1]
                if found := _FINISHED.search(line):
                    self.finished.append(found[1])
                    if "not stored yet" not in line:
                        self.told.append(found[1])

    def get(self, path: str) -> str:
        """Return a page; nothing if its status is an error, or while nobody serves."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return str(answer.read().decode())
        except (OSError, ValueError, http.client.HTTPException):
            return ""

    def metric(self, series: str) -> float:
        """Return the value of the first series that begins so, or 0."""
        found = re.search(rf"^{re.escape(series)}\S* (\S+)", self.get("metrics"), re.M)
        return float(found[1]) if found else 0.0

    def token(self) -> str:
        """Return the token of the calls that change state."""
        with contextlib.suppress(OSError):
            return (self.state / "token").read_text().strip()
        return ""

    def run_now(self, workload: str) -> str:
        """Start a workload, and return the id of its run, or nothing."""
        body = json.dumps({"workload": workload}).encode()
        headers = {"authorization": f"Bearer {self.token()}"}
        try:
            request = urllib.request.Request(self.url + "api/v1/runs", body, headers)
            with urllib.request.urlopen(request, timeout=10) as answer:
                return str(json.load(answer)["run_id"])
        except (OSError, ValueError, http.client.HTTPException):
            return ""

    def _scrape(self) -> None:
        power = re.compile(r'^tegra_rail_power_watts\{[^}]*rail="VDD_IN"[^}]*\} (\S+)', re.M)
        up = re.compile(r'^tegrascope_source_up\{source="tegrastats"\} 1', re.M)
        while not self._ended.wait(0.05):
            begin = time.monotonic()
            page = self.get("metrics")
            end = time.monotonic()
            if page:
                self.slowest = max(self.slowest, end - begin)
            if (value := power.search(page)) and up.search(page):
                now = begin + self.clock_seconds
                self.live = float(value[1]) + now // 1e6 * 1e6 - self.clock_seconds
                # A request that met a frozen daemon may have been answered before it.
                self.stale += (end if end - begin < 1 else begin) - self.live > STALE_SECONDS

    def _weigh(self) -> None:
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        while not self._ended.wait(MEMORY_SECONDS):
            total = 0
            for pid in self.tree():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    words = Path(f"/proc/{pid}/statm").read_text().split()
                    total += int(words[1]) * page_bytes
            self.peak_bytes = max(self.peak_bytes, total)

    def tree(self) -> list[int]:
        """Return the process ids of the daemon and of all below it."""
        pids = [self.process.pid]
        for pid in pids:
            for path in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    pids.extend(map(int, path.read_text().split()))
        return pids

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

    def wait_for_runs(self, count: int) -> bool:
        """Wait until more runs have finished; return whether they did."""
        count += len(self.finished)
        return self.wait(lambda: len(self.finished) >= count, 20) is not None

    def signal_child(self, word: str, number: int) -> bool:
        """Send a process signal to the children whose command line has a word."""
        has_met = False
        for pid in self.tree()[1:]:
            with contextlib.suppress(OSError):
                if word in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                    os.kill(pid, number)
                    has_met = True
        return has_met

    def end(self, seconds: float = 20.0) -> bool:
        """End the process by SIGTERM; return whether that was enough."""
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()

    def stored(self) -> set[str]:
        """Return the ids of all runs of the API."""
        ids: set[str] = set()
        before = ""
        while True:
            answer: dict[str, Any] = json.loads(self.get(f"api/v1/runs?limit=1000{before}") or "{}")
            runs = answer.get("runs", [])
            new = {run["run_id"] for run in runs} - ids
            ids |= new
            if len(runs) < 1000 or not new:
                return ids
            # The one of the same moment again, since a number of seconds is rounded.
            before = f"&before={runs[-1]['started_wall_ns'] / 1e9 + 1e-6:.7f}"

    def stop(self) -> set[str]:
        """End the daemon and return the runs of its store."""
        self._ended.set()
        self.end()
        command = [sys.executable, "-m", "tegrascope", "runs", "export", "--state-dir"]
        done = subprocess.run([*command, self.state], capture_output=True, text=True, check=False)
        return {json.loads(line)["run_id"] for line in done.stdout.splitlines()}
