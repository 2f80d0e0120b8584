"""Buffers of an element of GStreamer: counted exactly, and timed as by its own probes."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from statistics import median

import pytest

from tegrascope.collectors.application.gstreamer import ElementWatch, check_log_is_free, traced
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.gstreamer import TracerLine

MS = 1_000_000
STARTED = 5_000_000 * MS
PROBE = Path(__file__).parents[1] / "fakes/gst_probe.py"
GI = "import gi; gi.require_version('Gst', '1.0'); from gi.repository import Gst"
HAS_PROBES = not subprocess.run(
    ["/usr/bin/python3", "-c", GI], capture_output=True, check=False
).returncode
needs_gstreamer = pytest.mark.skipif(
    not shutil.which("gst-launch-1.0"), reason="no GStreamer: apt install gstreamer1.0-tools"
)
needs_probes = pytest.mark.skipif(
    not (HAS_PROBES and shutil.which("gst-launch-1.0")),
    reason="no GStreamer for Python: apt install gstreamer1.0-plugins-base gir1.2-gstreamer-1.0",
)


class Log:
    """A log that a program prints; times are milliseconds."""

    def __init__(self, element="nv"):
        self.watch = ElementWatch(element)

    def line(self, message, at=0.0, late=0.02, process=7, started=STARTED):
        printed = round(at * MS)
        arrived = started + printed + round(late * MS)
        self.watch.add(arrived, TracerLine(process, printed, message))

    def element(self, number, name, is_bin=0, **options):
        self.line(
            f"new-element, ix=(uint){number}, name=(string){name}, is-bin=(boolean){is_bin};",
            **options,
        )

    def push(self, giver, taker, at, pts=None, **options):
        stamp = f"have-buffer-pts=(boolean){int(pts is not None)}, buffer-pts=(guint64){pts or 0}"
        self.line(
            f"buffer, ts=(guint64){round(at * MS)}, element-ix=(uint){giver},"
            f" peer-element-ix=(uint){taker}, {stamp};",
            at,
            **options,
        )


@pytest.fixture
def log():
    made = Log()
    for number, name in enumerate(("source", "nv", "sink")):
        made.element(number, name)
    return made


def test_times_are_those_of_the_pushes_however_late_lines_come(log):
    for number in range(10):
        at = 100 + 33 * number
        log.push(0, 1, at, number, late=5.0)
        log.push(1, 2, at + 4, number, late=0.01 if number == 6 else 3.0)
    found = log.watch.buffers()
    assert found.count == 10
    error = round(0.01 * MS)
    assert found.begin_ns == STARTED + 100 * MS + error
    assert found.end_ns == STARTED + (100 + 33 * 9 + 4) * MS + error
    assert list(found.start_ns) == [STARTED + (100 + 33 * n) * MS + error for n in range(10)]
    assert list(found.latency_ns) == [4 * MS] * 10


def test_reordered_buffers_are_paired_by_their_time_stamps(log):
    for at, pts in enumerate((0, 3, 1, 2)):
        log.push(0, 1, at, pts)
    for at, pts in enumerate((0, 1, 2, 3), 10):
        log.push(1, 2, at, pts)
    found = log.watch.buffers()
    assert list(found.latency_ns) == [10 * MS, 9 * MS, 9 * MS, 12 * MS]


def test_dropped_and_made_buffers_have_no_time(log):
    for at in range(3000):
        log.push(0, 1, at, at)
        if at % 3 == 0:
            log.push(1, 2, at + 0.5, at)
            log.push(1, 2, at + 0.6, at + 10**9)
    found = log.watch.buffers()
    assert found.count == 2000
    assert list(found.latency_ns) == [MS // 2] * 1000


def test_buffers_without_time_stamps_are_paired_in_order(log):
    log.push(0, 1, 1)
    log.push(0, 1, 2)
    log.push(1, 2, 4)
    log.push(1, 2, 8)
    assert list(log.watch.buffers().latency_ns) == [3 * MS, 6 * MS]


def test_sink_counts_what_enters():
    made = Log("sink")
    made.element(2, "sink")
    made.push(1, 2, 10, 0)
    made.push(1, 2, 20, 1)
    found = made.watch.buffers()
    assert (found.count, list(found.start_ns)) == (2, [])
    assert found.end_ns - found.begin_ns == 10 * MS


def test_processes_have_numbers_and_clocks_of_their_own(log):
    log.element(5, "nv", process=8, started=STARTED + 1000 * MS)
    for process, number, started in ((7, 1, STARTED), (8, 5, STARTED + 1000 * MS)):
        log.push(0, number, 10, 0, process=process, started=started)
        log.push(number, 2, 12, 0, process=process, started=started)
    found = log.watch.buffers()
    assert found.count == 2
    error = round(0.02 * MS)
    assert [at - STARTED - error for at in found.start_ns] == [10 * MS, 1010 * MS]
    # The first process has another element of that number.
    log.push(0, 5, 30, 0)
    assert log.watch.buffers().count == 2


@pytest.mark.parametrize(
    ("element", "problem", "remedy"),
    [
        ("nv", "no buffer entered or left nv", "pipeline"),
        ("infer", "there is no element infer", "name one of: source, nv, sink"),
        ("box", "box is a bin", "name one of: source, nv, sink"),
    ],
)
def test_without_buffers_it_says_what_there_is(element, problem, remedy):
    made = Log(element)
    for number, name in enumerate(("source", "nv", "sink")):
        made.element(number, name)
    made.element(3, "box", is_bin=1)
    made.push(0, 3, 1, 0)
    with pytest.raises(UserError) as told:
        made.watch.buffers()
    assert told.value.message == problem
    assert remedy in told.value.remedy


def test_program_without_gstreamer_is_said_so():
    watch = ElementWatch("nv")
    with traced(watch) as env:
        subprocess.run(["true"], env={**os.environ, **env}, check=True)
    with pytest.raises(UserError, match="no element"):
        watch.buffers()


def run(element, *argv, **options):
    """Run a program under a watch; return its buffers."""
    watch = ElementWatch(element)
    with traced(watch) as env:
        subprocess.run(argv, env={**os.environ, **env}, check=True, timeout=100, **options)
    return watch.buffers()


@needs_probes
@pytest.mark.parametrize(
    ("element", "counts"),
    [
        ("identity name=nv sleep-time=3000", (150, 150)),
        # Buffers leave from another thread than that in which they enter.
        ("queue name=nv min-threshold-buffers=3", (150, 150)),
        ("bin.( identity name=nv )", (150, 150)),
        ("identity name=nv drop-probability=0.5", None),
        ("videorate name=nv ! video/x-raw,framerate=30/1", None),
    ],
)
def test_buffers_are_those_of_probes_in_the_pipeline(element, counts, tmp_path):
    source = "videotestsrc num-buffers=150 is-live=true ! video/x-raw,framerate=120/1,width=64"
    output = tmp_path / "noted.json"
    found = run(
        *("nv", "/usr/bin/python3", PROBE, output, "nv", f"{source} ! {element} ! fakesink"),
    )
    noted = json.loads(output.read_text())
    entered, left = noted["sink"], noted["src"]
    assert counts in (None, (len(entered), len(left)))
    assert found.count == len(left)
    # A probe or a push may lose the processor at any one buffer.
    assert abs(found.begin_ns - entered[0]) < 20 * MS
    assert abs(found.end_ns - max(left[-1], entered[-1])) < 20 * MS
    if len(left) == len(entered):
        starts = zip(found.start_ns, entered, strict=True)
        assert median(abs(a - b) for a, b in starts) < MS
        inside = [b - a for a, b in zip(entered, left, strict=True)]
        assert median(abs(a - b) for a, b in zip(found.latency_ns, inside, strict=True)) < MS


@needs_gstreamer
def test_lines_of_other_categories_and_tracers_of_the_user_stay(monkeypatch, capfd):
    monkeypatch.setenv("GST_DEBUG", "GST_PADS:5")
    monkeypatch.setenv("GST_DEBUG_COLOR_MODE", "on")
    monkeypatch.setenv("GST_TRACERS", "rusage;stats")
    pipeline = "fakesrc num-buffers=20 ! identity name=nv ! fakesink"
    assert run("nv", "gst-launch-1.0", "-q", *pipeline.split()).count == 20
    lines = capfd.readouterr().err.splitlines()
    assert any("GST_PADS" in line for line in lines)
    assert not any("GST_TRACER" in line for line in lines)


def test_log_that_is_wanted_in_a_file_is_refused(monkeypatch, tmp_path):
    check_log_is_free()
    monkeypatch.setenv("GST_DEBUG_FILE", str(tmp_path / "log"))
    with pytest.raises(UserError, match="GST_DEBUG_FILE"):
        check_log_is_free()


def test_process_that_is_left_behind_holds_up_nobody():
    watch = ElementWatch("nv")
    with traced(watch) as env, Path(env["GST_DEBUG_FILE"]).open("w") as log:
        child = subprocess.Popen(["sleep", "60"], stdout=log)
    assert child.poll() is None
    child.kill()
    child.wait()
