"""``tegrascope exec``: the program's streams, signals and status are its own; the rest is told."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tegrascope.daemon.measure.report import RunReport, Span
from tegrascope.daemon.store.history import History
from tegrascope.workbench.commands.execute import report_lines
from tests.daemons import until_measured
from tests.fakes.processes import Stopwatch, is_running, until

EXEC = (sys.executable, "-m", "tegrascope", "exec", "--workload", "job")
GST_PROGRAM = Path(__file__).parents[1] / "fakes/gst_program.py"
SIMULATED = (*EXEC, "--telemetry", "simulator", "--interval", "0.05", "--device", "gpu")


def execute(*argv: str, stdin: bytes = b"", **options: Any) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        argv, input=stdin, capture_output=True, timeout=300, check=False, **options
    )


def rows(printed: bytes) -> "set[str]":
    """Return the rows of a summary, with one space between words."""
    return {" ".join(line.split()) for line in printed.decode().splitlines()}


def python(code: str) -> "tuple[str, ...]":
    return "--", sys.executable, "-c", code


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("exit 0", 0, b": ok\n"),
        ("exit 3", 3, b"failed \xc2\xb7 the program ended with status 3"),
        ("exit 255", 255, b"status 255"),
        ("kill -9 $$", 137, b"failed \xc2\xb7 the program was ended by SIGKILL"),
        ("kill -TERM $$", 143, b"cancelled \xc2\xb7 the program was ended by SIGTERM"),
    ],
)
def test_status_is_the_programs(script, status, words):
    """However the program ends, that is how the command ends; and the report says so."""
    told = execute(*SIMULATED, "--", "sh", "-c", script)
    assert told.returncode == status
    assert words in told.stderr


def test_program_that_cannot_start_is_one_line(tmp_path):
    """127 for what is not there, 126 for what is no program, as in a shell, and why."""
    plain = tmp_path / "plain"
    plain.write_text("\x7fnothing")
    for program, mode, status in (
        (tmp_path / "none", None, 127),
        ("no-such-program-anywhere", None, 127),
        (plain, 0o644, 126),
        (plain, 0o755, 126),
        (tmp_path, None, 126),
    ):
        if mode is not None:
            plain.chmod(mode)
        told = execute(*SIMULATED, "--", str(program))
        assert told.returncode == status
        (line,) = told.stderr.decode().splitlines()
        assert line.startswith(f"tegrascope: {program}")


def test_arguments_of_the_program_may_be_any_bytes():
    told = execute(*SIMULATED, "--", "printf", "%s", b"\xff")
    assert (told.returncode, told.stdout) == (0, b"\xff")


def test_streams_are_the_programs_byte_by_byte():
    """What goes in and out passes no hand of ours: any bytes, no newline, no buffer between."""
    data = bytes(range(256)) * 4000
    told = execute(*SIMULATED, "--", "sh", "-c", "cat; printf '\\000end' >&2", stdin=data)
    assert told.stdout == data
    assert told.stderr.startswith(b"\0endtegrascope: job on gpu: ok")


def test_units_are_read_from_the_output_that_passes_through(tmp_path):
    """The output is as before, the counts are in the report, and other counts are named."""
    path = tmp_path / "report.json"
    code = """print('tegrascope: tokens=30'); print('TEGRASCOPE token=1.5'); print('x' * 200_000)
print('tegrascope: inferences=4'); print('tegrascope: frames=9', end='')"""
    told = execute(*SIMULATED, "--unit", "token", "--json", str(path), *python(code))
    assert told.returncode == 0
    assert told.stdout.decode().splitlines() == [
        *("tegrascope: tokens=30", "TEGRASCOPE token=1.5", "x" * 200_000),
        *("tegrascope: inferences=4", "tegrascope: frames=9"),
    ]
    report = json.loads(path.read_text())
    assert (report["unit"], report["units"], report["inferences"]) == ("token", 31.5, 4)
    assert {"inferences 4", "units of work 31.5 tokens"} <= rows(told.stderr)
    assert b"frames=N is not counted" in told.stderr


def test_process_left_behind_does_not_hold_the_units(tmp_path):
    """What is written until the program ends is read; what a background process writes is not."""
    script = "yes & echo $! > pid; echo tegrascope: tokens=5"
    told = execute(*SIMULATED, "--unit", "token", "--", "sh", "-c", script, cwd=tmp_path)
    assert told.returncode == 0
    assert "units of work 5 tokens" in rows(told.stderr)
    until(lambda: not is_running(int((tmp_path / "pid").read_text())))


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_signal_state_is_as_if_started_by_hand(handler):
    """No signal is blocked or ignored that would not be without us, and no other one."""
    before = signal.signal(signal.SIGTERM, handler)
    try:
        hold_signal_state_against_a_shell()
    finally:
        signal.signal(signal.SIGTERM, before)


def hold_signal_state_against_a_shell():
    state = ("grep", "Sig[BI]", "/proc/self/status")

    def words(told: bytes) -> "list[tuple[str, int]]":
        rows = (line.split(":") for line in told.decode().splitlines())
        # Signals 32 and 33 are the C library's own, and its posix_spawn ignores them in a child.
        return [(name, int(mask, 16) & ~(3 << 31)) for name, mask in rows]

    assert words(execute(*SIMULATED, "--", *state).stdout) == words(execute(*state).stdout)


def test_arguments_of_the_program_are_left_alone():
    """Options, another ``--`` and empty words reach the program as they are."""
    code = "import sys; print(sys.argv[1:])"
    words = ["-c", "--json", "x", "--", "", "--workload"]
    told = execute(*SIMULATED, *python(code), *words)
    assert told.stdout.decode().strip() == str(words)


def test_report_has_energy_of_the_programs_time(tmp_path):
    """The window is the program's life: energy, load and count of it, in words, file and store."""
    path, state = tmp_path / "report.json", tmp_path / "state"
    words: set[str] = set()

    def run_once() -> "dict[str, Any]":
        nonlocal words
        told = execute(
            *(*SIMULATED, "--inferences", "500", "--batch", "2", "--json", str(path)),
            *("--baseline", "0.7", "--state-dir", str(state), "--", "sleep", "1"),
        )
        assert told.returncode == 0
        words = rows(told.stderr)
        return json.loads(path.read_text())

    report = RunReport.model_validate(until_measured(run_once))
    assert (report.workload, report.backend, report.device) == ("job", "exec", "gpu")
    assert (report.outcome, report.inferences, report.batch) == ("ok", 500, 2)
    assert 1 <= report.phases["steady"].seconds < 30
    assert set(report.phases) == {"baseline_before", "steady", "baseline_after"}
    assert report.energy is not None
    assert report.energy.gross_joules is not None
    assert report.energy.net_joules is not None
    assert report.energy.net_joules > 0  # the simulated board is told of the work
    assert report.energy.gross_joules_per_inference is None  # one second is too short to say
    assert "insufficient_samples" in report.quality
    assert {f"run {report.run_id}", "inferences 500"} <= words
    labels = (
        "gross energy (whole module)",
        "net energy (above idle)",
        "module power",
        "idle power",
        "load",
    )
    for label in labels:
        assert any(row.startswith(f"{label} ") for row in words), label
    run, *_ = History(state / "tegrascope.db").runs()
    assert run == json.loads(path.read_text())


def test_buffers_of_a_gstreamer_element_are_the_inferences(tmp_path):
    """The window is from the first to the last buffer, without the start of the program."""
    path, noted = tmp_path / "report.json", tmp_path / "noted.json"
    program = (sys.executable, str(GST_PROGRAM), str(noted), "300", "1.5")
    told = execute(*SIMULATED, "--gst", "nv", "--json", str(path), "--", *program)
    assert told.returncode == 0, told.stderr
    report = RunReport.model_validate_json(path.read_text())
    entries = json.loads(noted.read_text())
    assert report.inferences == len(entries) == 300
    assert report.latency is not None
    assert report.latency.count == 300
    steady = report.phases["steady"]
    assert 0 <= steady.begin_ns - entries[0] < 20_000_000
    assert entries[-1] <= steady.end_ns
    assert "inferences 300" in rows(told.stderr)


def test_element_that_is_not_in_the_pipeline_is_said_and_the_program_measured(tmp_path):
    program = (sys.executable, str(GST_PROGRAM), str(tmp_path / "noted.json"), "3", "0")
    told = execute(*SIMULATED, "--gst", "infer", "--", *program)
    assert told.returncode == 0
    words = told.stderr.decode()
    assert "no frames are counted: there is no element infer: name one of: source, nv" in words
    assert "inferences" not in words


@pytest.mark.parametrize("script", ["exit 3", "kill -TERM $$"])
def test_failed_program_has_made_no_inferences(tmp_path, script):
    path = tmp_path / "report.json"
    command = (*SIMULATED, "--inferences", "5000", "--json", str(path), "--", "sh", "-c", script)
    words = execute(*command).stderr.decode()
    report = RunReport.model_validate_json(path.read_text())
    assert (report.inferences, report.throughput_per_second) == (0, None)
    assert "inferences" not in words


def test_without_telemetry_the_program_runs_all_the_same(tmp_path):
    """No tegrastats, no daemon: the program's status, and a report that says what is missing."""
    environment = {**os.environ, "PATH": "/bin:/usr/bin", "HOME": str(tmp_path)}
    environment.pop("XDG_STATE_HOME", None)
    told = execute(
        *EXEC, "--url", "http://127.0.0.1:9", "--", "sh", "-c", "exit 4", env=environment
    )
    assert told.returncode == 4
    words = told.stderr.decode()
    assert "measured here: no t" in words
    assert "no telemetry: tegrastats was not found" in words
    assert "energy" not in words


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (["--telemetry", "sundial"], "--telemetry sundial", 2),
        (["--telemetry", "replay"], "replay.path must name the log", 2),
        (["--interval", "0.001"], "interval", 2),
        (["-c", "none.yaml"], "none.yaml", 1),
        (["--gst", "nv", "--inferences", "3"], "--gst counts", 2),
        ([], "no program is given", 2),
    ],
)
def test_slip_of_the_pen_is_one_line_and_starts_nothing(tmp_path, arguments, words, status):
    """A wrong option is told before the program is started."""
    program = ["--", "touch", "started"] if arguments else []
    told = execute(*EXEC, *arguments, *program, cwd=tmp_path)
    assert told.returncode == status
    (line,) = told.stderr.decode().splitlines()
    assert words in line
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("option", ["--json", "--state-dir"])
def test_place_that_cannot_be_written_is_refused_before_the_program_starts(tmp_path, option):
    (tmp_path / "file").write_text("no directory")
    place = str(tmp_path / "file" / "report.json")
    told = execute(*SIMULATED, option, place, "--", "touch", "started", cwd=tmp_path)
    assert told.returncode == 1
    (line,) = told.stderr.decode().splitlines()
    assert line == f"tegrascope: {place}: Not a directory: name a writable file with {option}"
    assert not (tmp_path / "started").exists()


def test_place_that_is_lost_meanwhile_does_not_change_the_status(tmp_path):
    """The program has done its work, and what cannot be written is a note beside the report."""
    (tmp_path / "reports").mkdir()
    told = execute(
        *(*SIMULATED, "--json", "reports/report.json", "--", "rmdir", "reports"), cwd=tmp_path
    )
    assert told.returncode == 0
    assert b"the report is not written: " in told.stderr
    assert b"job on gpu: ok" in told.stderr


COUNT = """
import signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: seen.append(number))
print("ready", flush=True)
until = time.monotonic() + 120
while not seen and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.3)
print(*map(int, seen), flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_us_is_passed_on_once(number):
    """Who sends us SIGINT or SIGTERM means the program, which gets it and ends as it likes."""
    with subprocess.Popen(
        [*SIMULATED, *python(COUNT)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
    assert (out, process.returncode) == (f"{int(number)}\n", 7)
    assert "status 7" in err


# In a process of its own, since a process with threads should not fork.
TERMINAL = """
import os, pty, signal, sys, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])

def read_until(word):
    told = b""
    while word not in told:
        try:
            told += os.read(terminal, 1024) or word
        except OSError:  # the other end is closed
            return told
    return told

def relay_listens():
    # A C library blocks all signals while it forks or starts a thread; the relay never SIGTERM.
    with open(f"/proc/{pid}/status") as status:
        blocked = int(status.read().partition("SigBlk:")[2].split()[0], 16)
    return blocked >> signal.SIGINT - 1 & 1 and not blocked >> signal.SIGTERM - 1 & 1

if sys.argv[1] == "program":
    read_until(b"ready")
else:
    while not relay_listens():
        time.sleep(0.02)
os.write(terminal, b"\\x03")
sys.stdout.buffer.write(read_until(b"nothing that is said"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_ctrl_c_reaches_the_program_once():
    """Ctrl-C in a terminal goes to everybody in it; the program is not told twice."""
    told = execute(sys.executable, "-c", TERMINAL, "program", *SIMULATED, *python(COUNT))
    assert b"2\r\n" in told.stdout
    assert b"2 2" not in told.stdout
    assert b"status 7" in told.stdout
    assert told.returncode == 7, told.stderr


def test_ctrl_c_before_the_program_starts_starts_nothing(tmp_path):
    """Interrupted in the baseline, the command ends as by the signal, without the program."""
    command = (*SIMULATED, "--baseline", "600", "--", "touch", "started")
    told = execute(sys.executable, "-c", TERMINAL, "baseline", *command, cwd=tmp_path)
    assert told.returncode == 130, told.stderr
    assert not (tmp_path / "started").exists()


def test_children_that_are_left_behind_hold_up_nobody():
    """The window ends with the program; what it left in the background goes on, as in a shell."""
    watch = Stopwatch()
    told = subprocess.run(
        [*SIMULATED, "--", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"],
        capture_output=True,
        timeout=300,
        check=False,
    )
    left = int(told.stdout)
    assert watch.seconds < 20
    assert Path(f"/proc/{left}").exists()
    os.kill(left, signal.SIGKILL)


def test_report_says_only_what_is_known():
    """A run without energy, load or count is a headline, its time and its id."""
    bare = RunReport(
        run_id="0193",
        workload="job",
        backend="exec",
        device="external",
        outcome="failed",
        reason="status 1",
        started_wall_ns=0,
        started_ns=0,
        ended_ns=10**9,
        phases={"steady": Span(begin_ns=0, end_ns=10**9)},
    )
    assert report_lines(bare, ("look here",)) == [
        "tegrascope: job on external: failed · status 1",
        "  steady phase  1.00 s",
        "  run           0193",
        "  note          look here",
    ]
