"""What checks ask of the machine: bounded in time, never an exception."""

import http.server
import os
import socket
import threading
import time

import pytest

from tegrascope.collectors.board.machine import Answer, Machine, cpu_busy_ratio
from tests.fakes.processes import Stopwatch, is_running, until


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "bin").mkdir()
    return Machine(root=tmp_path, environ={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})


def test_text_is_read_or_not(machine, tmp_path):
    """The device tree's NULs are gone; what is absent or a directory is None."""
    (tmp_path / "model").write_bytes(b"NVIDIA Jetson\0")
    assert machine.text("/model") == "NVIDIA Jetson"
    assert machine.text("/none") is machine.text("/bin") is None
    assert (machine.there("/model"), machine.there("/none")) == ("there", "absent")


def test_program_that_hangs_is_ended_with_its_family(machine, tmp_path):
    """A program over its time has no status, and what it started does not outlive it."""
    watch = Stopwatch()
    told = machine.run(("sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait"), 1.5)
    assert watch.seconds < 6
    assert told.status is None
    assert "did not end within 1.5 s" in told.message
    pid = int((tmp_path / "pid").read_text())
    assert until(lambda: not is_running(pid))


def test_program_that_escapes_its_group_does_not_hold_us_up(machine):
    """A grandchild in a session of its own keeps the pipe open; we go on without it."""
    watch = Stopwatch()
    told = machine.run(("sh", "-c", "setsid sleep 8 & sleep 600"), 0.5)
    assert watch.seconds < 5
    assert told.status is None


def test_program_tells_its_status_and_last_word(machine):
    """Output, status and the last line of standard error; one that is not there says so."""
    told = machine.run(("sh", "-c", "echo out; echo first >&2; echo last >&2; exit 3"))
    assert (told.status, told.out, told.message) == (3, "out\n", "last")
    assert machine.run(("/nonexistent/program",)).status is None


def test_lines_of_a_program_that_goes_on(machine):
    """As many lines as were asked for, at once; fewer, with the reason."""
    watch = Stopwatch()
    lines, problem = machine.lines(("sh", "-c", "while :; do echo x; sleep 0.01; done"), 3, 30.0)
    assert (lines, problem) == (["x"] * 3, "")
    assert watch.seconds < 5
    lines, problem = machine.lines(("sh", "-c", "echo x; sleep 600"), 3, 1.0)
    assert (lines, problem) == (["x"], "printed 1 line(s) in 1 s")
    assert machine.lines(("sh", "-c", "echo no >&2; exit 2"), 3, 5.0)[1] == (
        "ended with status 2 (no)"
    )
    assert machine.lines(("/nonexistent/program",), 3, 5.0)[0] == []


def test_listening_socket_is_told_from_a_dead_one(machine, tmp_path, monkeypatch):
    """By the kernel's own list: nobody is connected to for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "proc/net").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/s")
        assert not Machine().listens(f"{tmp_path}/s")
        server.listen()
        server.settimeout(0)
        assert Machine().listens(f"{tmp_path}/s")
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not Machine().listens(f"{tmp_path}/s")
    made = machine.socket_made_seconds(["/s", "/none"])
    assert made == pytest.approx(time.time(), abs=60)
    assert machine.socket_made_seconds(["/proc"]) is None


def test_page_is_got_or_the_reason(machine):
    """A page, nobody there, a peer that says nothing, and one that talks nonsense."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok\n")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        told = machine.get("127.0.0.1", server.server_port, "/healthz")
        assert (told.status, told.out) == (200, "ok\n")
        thread.join()
        port = server.server_port
    assert machine.get("127.0.0.1", port, "/").message == "refused"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = machine.get("127.0.0.1", silent.getsockname()[1], "/", 0.2)
        assert (told.status, told.message) == (None, "timed out")


def test_what_only_a_kernel_tells_is_told_or_none(machine, tmp_path):
    """The clock's state, free space, packages: an answer or None, no error."""
    assert machine.is_synchronised() in (True, False, None)
    assert (machine.free_bytes(tmp_path / "not" / "there") or 0) > 0
    assert machine.package("pydantic")
    assert machine.package("no-such-distribution") is None
    assert machine.which("sh")
    assert machine.which("no-such-program") is None
    assert machine.find("/b*", "/none/*") == ["/bin"]


@pytest.mark.parametrize(
    ("script", "messages"),
    [("echo nvdla0: initialized", ["nvdla0: initialized"]), ("echo denied >&2; exit 1", None)],
)
def test_log_of_the_kernel_is_that_of_dmesg(machine, tmp_path, script, messages):
    program = tmp_path / "bin" / "dmesg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert machine.kernel_log() == messages


def test_load_of_the_cpu_is_a_share_and_ends_early():
    stopping = threading.Event()
    found = cpu_busy_ratio(0.05, stopping)
    assert found is not None
    assert 0 <= found <= 1
    stopping.set()
    assert cpu_busy_ratio(3600.0, stopping) is not None


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_program_that_prints_without_end_is_killed(machine, stream):
    found = machine.run(("sh", "-c", f"yes{stream}"), 60.0)
    assert found == Answer(None, "", "sh printed over 256 KiB")


def test_output_without_a_last_newline_is_whole(machine):
    assert machine.run(("printf", "a\\nb\\377")).out == "a\nb\ufffd"
