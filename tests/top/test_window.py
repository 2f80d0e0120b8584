"""``tegrascope top`` in a real terminal, on a real daemon."""

import os
import re
import signal
import subprocess
import sys

from tests.top.terminal import Terminal

CONFIG = """
telemetry: {source: simulator, interval: 200ms}
workloads:
- {name: eyes, model: "builtin:mobilenet", device: cpu, threads: 1, warm_up: 0,
   baseline: 0, duration: 1500ms, every: 3s}
- {name: ears, command: "false", device: dla0, warm_up: 0, baseline: 0, duration: 1s, every: 2s}
"""


def once(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tegrascope", "top", "--once", *arguments]
    plain = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=plain)


def test_window_of_80_by_24(start):
    daemon = start(CONFIG)
    with Terminal(["top", "--url", daemon.url, "--interval", "0.2"], 80, 24) as window:
        window.wait_for(lambda: "q quits" in window.text)
        window.wait_for(lambda: re.search(r"^eyes .* \d+/\d+$", window.text, re.MULTILINE))
        window.wait_for(lambda: re.search(r"^eyes +cpu +running", window.text, re.MULTILINE))
        window.wait_for(lambda: re.search(r"^eyes +cpu .* [1-9]\d*/", window.text, re.MULTILINE))
        window.wait_for(lambda: re.search(r"^ears +dla0 +failed", window.text, re.MULTILINE))
        for shown in (r"^  failed: ", r"^  insufficient_samples", r"module +\d+\.\d+ W"):
            window.wait_for(lambda shown=shown: re.search(shown, window.text, re.MULTILINE))
        lines = window.lines
        assert lines[0].startswith("tegrascope  agx-orin-64gb")
        assert " SIMULATED " in lines[0]
        assert lines[1].startswith("simulator up")
        assert lines[1].endswith(daemon.url.rstrip("/"))
        assert [line[:5].strip() for line in lines[2:9]] == [
            *("GPU", "DLA0", "DLA1", "EMC", "CPU", "RAM", "swap")
        ]
        assert lines[23] == "q quits"
        assert window.has_colour
        then = lines[0][-8:]
        window.wait_for(lambda: window.lines[0][-8:] > then)

        window.resize(60, 20)
        window.wait_for(lambda: window.lines[19] == "q quits" and "GPU" in window.text)
        assert all(len(line) <= 60 for line in window.lines)
        window.resize(80, 24)

        port = daemon.url.rstrip("/").rpartition(":")[2]
        daemon.stop(signal.SIGKILL)
        window.wait_for(lambda: re.match(r"stale since \d\d:\d\d:\d\d: no tegra", window.lines[1]))
        assert "GPU" in window.text
        again = start(CONFIG, "--listen", f"127.0.0.1:{port}")
        assert again.url
        window.wait_for(lambda: window.lines[1].startswith("simulator up"))
        assert window.end(b"q") == 0
        assert window.is_restored()

    with Terminal(["top", "--url", again.url], 60, 20, NO_COLOR="1") as window:
        window.wait_for(lambda: "q quits" in window.text and "GPU" in window.text)
        assert not window.has_colour
        assert window.end(b"\x03") == 0
        assert window.is_restored()

    told = once("--url", again.url)
    assert (told.returncode, told.stderr) == (0, "")
    assert "\x1b" not in told.stdout
    assert "SIMULATED" in told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 80


def test_absent_daemon_is_one_line():
    told = once("--url", "http://127.0.0.1:1")
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith("tegrascope: no tegrascope daemon answers at http://127.0.0.1:1 ")
    assert told.stderr.count("\n") == 1
    with Terminal(["top", "--url", "http://127.0.0.1:1"], 80, 24) as window:
        window.wait_for(lambda: window.process.poll() is not None)
        window.wait_for(lambda: "tegrascope run" in " ".join(window.lines))
        assert window.process.returncode == 1
        assert b"\x1b[?1049h" not in window.printed
