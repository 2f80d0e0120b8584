"""``tegrascope top`` in a real terminal, on a real daemon."""

import os
import random
import re
import signal
import socket
import subprocess
import sys

from tests.top.terminal import Terminal

CONFIG = """
telemetry: {source: simulator, interval: 200ms}
workloads:
- {name: eyes, model: "builtin:mobilenet", device: cpu, threads: 1, warm_up: 0,
   baseline: 0, duration: 1500ms, every: 5s}
- {name: ears, command: "false", device: dla0, warm_up: 0, baseline: 0, duration: 1s, every: 2s}
"""


def once(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tegrascope", "top", "--once", *arguments]
    plain = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=plain)


def free_port() -> int:
    """Return a free port that no outgoing connection takes while the daemon is away."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def test_window_of_80_by_24(start):
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    daemon = start(CONFIG, *listen)
    with Terminal(["top", "--url", daemon.url, "--interval", "0.2"], 80, 24) as window:
        # Each appears at some time; a busy machine adds flags and late answers between them.
        for shown in (
            r"^eyes .* \d+/\d+$",
            r"^eyes +cpu +running",
            r"^eyes +cpu .* [1-9]\d*/",
            r"^ears +dla0 +failed",
            r"^  failed: ",
            r"^  .*insufficient_samples",
            r"module +\d+\.\d+ W",
        ):
            window.wait_for(lambda shown=shown: re.search(shown, window.text, re.MULTILINE))

        def whole() -> "list[str] | None":
            lines = window.lines
            is_drawn = lines[23] == "q quits" and " SIMULATED " in lines[0]
            return lines if is_drawn and lines[1].startswith("simulator up") else None

        lines = window.wait_for(whole)
        assert lines[0].startswith("tegrascope  agx-orin-64gb")
        assert lines[1].endswith(daemon.url.rstrip("/"))
        assert [line[:5].strip() for line in lines[2:9]] == [
            *("GPU", "DLA0", "DLA1", "EMC", "CPU", "RAM", "swap")
        ]
        assert window.has_colour
        then = lines[0][-8:]
        window.wait_for(lambda: window.lines[0][-8:] != then)

        window.resize(60, 20)
        window.wait_for(lambda: window.lines[19] == "q quits" and "GPU" in window.text)
        assert all(len(line) <= 60 for line in window.lines)
        window.resize(80, 24)

        daemon.stop(signal.SIGKILL)
        window.wait_for(lambda: re.match(r"stale since \d\d:\d\d:\d\d: no tegra", window.lines[1]))
        assert "GPU" in window.text
        again = start(CONFIG, *listen)
        assert again.url
        window.wait_for(lambda: window.lines[1].startswith("simulator up"))
        assert window.end(b"q") == 0
        assert window.is_restored()

    with Terminal(["top", "--url", again.url], 60, 20, NO_COLOR="1") as window:
        window.wait_for(lambda: "q quits" in window.text and "GPU" in window.text)
        assert not window.has_colour
        assert window.end(b"\x03") == 0
        assert window.is_restored()

    printed = once("--url", again.url)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert "\x1b" not in printed.stdout
    assert "SIMULATED" in printed.stdout
    assert max(map(len, printed.stdout.splitlines())) <= 80


def test_absent_daemon_is_one_line():
    printed = once("--url", "http://127.0.0.1:1")
    assert (printed.returncode, printed.stdout) == (1, "")
    assert printed.stderr.startswith(
        "tegrascope: no tegrascope daemon answers at http://127.0.0.1:1 "
    )
    assert printed.stderr.count("\n") == 1
    with Terminal(["top", "--url", "http://127.0.0.1:1"], 80, 24) as window:
        window.wait_for(lambda: window.process.poll() is not None)
        window.wait_for(lambda: "tegrascope run" in " ".join(window.lines))
        assert window.process.returncode == 1
        assert b"\x1b[?1049h" not in window.printed
