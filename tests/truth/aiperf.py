"""AIPerf, unmodified, against a made chat server on a simulated board.

``python -m tests.truth.aiperf --aiperf PATH``: the server's requests load the board, whose lines a
daemon reads. AIPerf reads the daemon's page ``/metrics/dcgm``. Its export is paired with the
recorded lines by ``tegrascope correlate``. Printed are the true energy of the requests, that of
tegrascope and that of AIPerf. The status is 1 if tegrascope's is off by more than a hundredth, if
the truth is outside its interval, or if AIPerf shows no energy.

With ``--plugin`` AIPerf reads it by our plug-in, which has to be installed beside it:
``pip install ./docs/works-with/aiperf``.

``pip install aiperf`` takes 1 GB, so give it an environment of its own. Without the program nothing
is run, and the status is 0.
"""

import argparse
import http.server
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tegrascope.collectors.simulator.board import SimulatorSource
from tegrascope.collectors.simulator.physics import LoadBoard
from tests.daemons import Daemon

INTERVAL_SECONDS = 0.103
# Three of them; a line comes 6 to 22 ms after the interval.
LEAST_PAUSE_SECONDS = 0.351
# Load and time of the two parts of a request, in ratios and seconds.
PREFILL, DECODE = (0.9, 0.12), (0.45, 0.015)
MOST_WRONG = 0.01
# Requests back to back, and at random times with pauses.
BENCHMARKS = {
    "two at a time": ("--concurrency", "2", "--request-count", "60", "--osl", "32"),
    "with pauses": ("--request-rate", "0.4", "--request-count", "32", "--osl", "100"),
}
NANOSECONDS = 1_000_000_000
_TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = {f"w{number}": number for number in range(500)}
made = Tokenizer(models.WordLevel({"[UNK]": 500, "[EOS]": 501, **words}, unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(
    tokenizer_object=made, unk_token="[UNK]", eos_token="[EOS]", pad_token="[EOS]"
).save_pretrained(sys.argv[1])
"""


class Board:
    """A simulated board in real time; its lines go to a pipe and, with their time, to a log."""

    def __init__(self, folder: Path, board: str) -> None:
        self.load = LoadBoard()
        self.pipe, self.log = folder / "pipe", folder / "robot.log"
        os.mkfifo(self.pipe)
        self.source = SimulatorSource(board, load=self.load, interval_seconds=INTERVAL_SECONDS)
        self._thread = threading.Thread(target=self._print, daemon=True)
        self._thread.start()

    def _print(self) -> None:
        # The daemon ends before the board.
        with suppress(BrokenPipeError), self.pipe.open("w") as pipe, self.log.open("w") as log:
            for line in self.source.lines():
                print(line.value, file=pipe, flush=True)
                print(f"{line.wall_ns / 1e9:.6f}::{line.value}", file=log, flush=True)

    def joules(self, spans: list[tuple[int, int]]) -> float:
        """Return the true energy of spans of wall time, in nanoseconds since 1970."""
        behind_ns = time.time_ns() - time.monotonic_ns()
        energy = self.source.board.true_energy
        return sum(energy(a - behind_ns, b - behind_ns).module_joules for a, b in spans)

    def stop(self) -> None:
        self.source.stop()
        self._thread.join(10)


class ChatServer(http.server.ThreadingHTTPServer):
    """An OpenAI-compatible server whose answers cost the board energy and are words of no sense."""

    daemon_threads = True

    def __init__(self, load: LoadBoard) -> None:
        super().__init__(("127.0.0.1", 0), _Chat)
        self.load, self.numbers = load, itertools.count()
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Chat(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChatServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        tokens = asked.get("max_completion_tokens") or asked.get("max_tokens") or 32
        holder = str(next(self.server.numbers))
        self.server.load.set("gpu", PREFILL[0], holder=holder)
        try:
            time.sleep(PREFILL[1])
            self.server.load.set("gpu", DECODE[0], holder=holder)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for number in range(tokens):
                time.sleep(DECODE[1])
                self._send({"choices": [{"index": 0, "delta": {"content": f"w{number % 500} "}}]})
            self.wfile.write(b"data: [DONE]\n\n")
        finally:
            self.server.load.set("gpu", 0.0, holder=holder)

    def _send(self, chunk: dict[str, Any]) -> None:
        whole = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", **chunk}
        self.wfile.write(f"data: {json.dumps(whole)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def profile(
    aiperf: str, folder: Path, server: str, url: str, has_plugin: bool, arguments: tuple[str, ...]
) -> Path:
    """Run AIPerf and return its export of requests, or end with its log."""
    source = "tegrascope" if has_plugin else f"{url}metrics/dcgm"
    tokenizer, export = folder / "tokenizer", folder / "aiperf"
    python = Path(aiperf).resolve().parent / "python"
    subprocess.run([python, "-c", _TOKENIZER, tokenizer], check=True, capture_output=True)
    command = [
        *(aiperf, "profile", "--model", "m", "--url", server, "--endpoint-type", "chat"),
        *("--streaming", "--tokenizer", tokenizer.name, "--isl", "16"),
        *("--gpu-telemetry", source, "--artifact-dir", str(export), "--ui", "none", *arguments),
    ]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120", "TEGRASCOPE_URL": url}
    ran = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, timeout=900
    )
    found = sorted(export.rglob("profile_export.jsonl"))
    if ran.returncode or not found:
        sys.exit(f"aiperf failed with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}")
    return found[0]


@contextmanager
def reading(folder: Path, board: Board) -> Iterator[str]:
    """Run a daemon on the lines of a board; its address is given."""
    config = folder / "tegrascope.yaml"
    telemetry = f"telemetry: {{source: stream, stream: {{path: {board.pipe}}}}}"
    config.write_text(f"{telemetry}\nhttp: {{compatibility: [dcgm]}}\n", encoding="utf-8")
    daemon = Daemon(config, folder / "state")
    try:
        yield daemon.url
    finally:
        daemon.stop(signal.SIGTERM)


def paired(folder: Path, log: Path, export: Path) -> dict[str, Any]:
    """Return what ``tegrascope correlate`` says about an export, and print what it prints."""
    found = folder / "paired.jsonl"
    words = ["--telemetry", log, "--runs", export, "--format", "jsonl", "-o", found]
    command = [sys.executable, "-m", "tegrascope", "correlate", *map(str, words)]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stderr, end="")
    (line,) = found.read_text(encoding="utf-8").splitlines()
    return dict(json.loads(line))


def stamps(export: Path) -> list[tuple[int, int]]:
    """Return when a request was in flight by AIPerf's stamps: disjoint spans, in order.

    Pauses of less than three intervals count with the requests, as the docs say.
    """
    lines = export.read_text(encoding="utf-8").splitlines()
    parts: list[tuple[int, int]] = []
    times = (json.loads(line)["metadata"] for line in lines)
    for begin, end in sorted((one["request_start_ns"], one["request_end_ns"]) for one in times):
        if parts and begin <= parts[-1][1] + LEAST_PAUSE_SECONDS * NANOSECONDS:
            parts[-1] = parts[-1][0], max(parts[-1][1], end)
        else:
            parts.append((begin, end))
    return parts


def is_right(name: str, truth: float, found: dict[str, float]) -> bool:
    """Print a figure beside the truth; return whether it is near, and the truth in its interval."""
    error = found["value"] / truth - 1
    print(
        f"  {name}: truth {truth:.2f} J, tegrascope {found['value']:.2f} J"
        f" ({found['low']:.2f} to {found['high']:.2f}), off by {error:+.2%}"
    )
    return abs(error) <= MOST_WRONG and found["low"] <= truth <= found["high"]


def measure(aiperf: str, board_name: str, has_plugin: bool, arguments: tuple[str, ...]) -> bool:
    """Run one benchmark; return whether the figures are right."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        board = Board(folder, board_name)
        try:
            with reading(folder, board) as url:
                server = ChatServer(board.load).url
                export = profile(aiperf, folder, server, url, has_plugin, arguments)
        finally:
            board.stop()
        document = paired(folder, board.log, export)
        parts = stamps(export)
        truth = board.joules([(parts[0][0], parts[-1][1])])
        energy = document["energy"]
        whole = {"value": energy["gross_joules"], **energy["gross_interval"]}
        right = [is_right("whole phase", truth, whole), "aiperf" in document]
        if "in_flight" in document:
            right.append(
                is_right("in flight", board.joules(parts), document["in_flight"]["joules"])
            )
        if "aiperf" in document:
            print(f"  AIPerf's own is off by {document['aiperf']['joules'] / truth - 1:+.2%}")
        return all(right)


def main() -> int:
    """Run the benchmarks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--aiperf", default=shutil.which("aiperf"), help="path of the program")
    parser.add_argument("--board", default="orin-nx-16gb", help="simulated board")
    parser.add_argument(
        "--plugin", action="store_true", help="read by the plug-in of docs/works-with/aiperf"
    )
    options = parser.parse_args()
    if options.aiperf is None:
        print("skipped: there is no aiperf here; pip install aiperf, or give --aiperf PATH")
        return 0
    right = []
    for name, arguments in BENCHMARKS.items():
        print(f"{name}:", flush=True)
        right.append(measure(options.aiperf, options.board, options.plugin, arguments))
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
