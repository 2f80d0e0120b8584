"""Processes by name: real children of the test, and the limits of what is shown."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tegrascope.collectors.base import SystemClock
from tegrascope.collectors.processes.names import ProcessNames, group_of
from tegrascope.collectors.processes.watch import ProcessUse, ProcessWatch
from tegrascope.daemon.export.metrics import Page
from tegrascope.daemon.export.snapshot import LiveState, Snapshot
from tegrascope.parsers.signals import by_name
from tests.fakes.processes import PATIENCE_SECONDS

CONTAINER = "0123456789ab" + 52 * "c"
BUSY = "import sys, time\nwhile True: sum(range(10_000))\n"
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start programs that end with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*command: str) -> "subprocess.Popen[bytes]":
        running.append(subprocess.Popen(command))
        return running[-1]

    yield begin
    for one in running:
        one.kill()
        one.wait()


def script(directory: Path, name: str, text: str = BUSY) -> str:
    (directory / name).write_text(text)
    return str(directory / name)


def use_of(found: tuple[ProcessUse, ...], name: str) -> ProcessUse:
    (use,) = (one for one in found if one.name == name)
    return use


@pytest.mark.parametrize(
    ("cgroup", "group"),
    [
        (f"0::/system.slice/docker-{CONTAINER}.scope", "docker:0123456789ab"),
        (f"0::/docker/{CONTAINER}", "docker:0123456789ab"),
        (f"12:cpu:/docker/{CONTAINER}\n11:memory:/docker/{CONTAINER}", "docker:0123456789ab"),
        (f"0::/machine.slice/libpod-{CONTAINER}.scope/container", "podman:0123456789ab"),
        (
            f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{CONTAINER}.scope",
            "containerd:0123456789ab",
        ),
        (f"0::/kubepods/besteffort/pod1-2/{CONTAINER}", "container:0123456789ab"),
        # k3s: its containerd, with systemd's cgroups and without.
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
            f"/cri-containerd-{CONTAINER}.scope",
            "containerd:0123456789ab",
        ),
        (f"11:memory:/kubepods/burstable/pod1-2/{CONTAINER}", "container:0123456789ab"),
        (
            f"1:name=systemd:/system.slice/k3s.service/kubepods-pod1:cri-containerd:{CONTAINER}",
            "containerd:0123456789ab",
        ),
        (f"4:cpu:/machine.slice/libpod-{CONTAINER}.scope", "podman:0123456789ab"),
        (
            f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{CONTAINER}.scope",
            "podman:0123456789ab",
        ),
        (f"0::/system.slice/nerdctl-{CONTAINER}.scope", "nerdctl:0123456789ab"),
        # From inside a container with --pid host: cgroup_namespaces(7).
        (f"0::/../docker-{CONTAINER}.scope", "docker:0123456789ab"),
        ("0::/../detector.service", "detector.service"),
        ("0::/../../user.slice/user-1000.slice/user@1000.service/app.slice/a.service", None),
        ("0::/lxc.payload.box/init.scope", "lxc:box"),
        ("0::/system.slice/detector.service", "detector.service"),
        ("0::/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"),
        ("0::/user.slice/user-1000.slice/session-1.scope", None),
        ("0::/init.scope", None),
        ("", None),
    ],
)
def test_container_or_unit_is_named_by_the_cgroup(cgroup, group):
    assert group_of(cgroup) == group


def test_script_of_an_interpreter_is_part_of_its_name(start, tmp_path):
    child = start(sys.executable, script(tmp_path, "detect.py"))
    names = ProcessNames(own=-1)
    interpreter = Path(sys.executable).name
    while (name := names.name(child.pid)) is None or "detect.py" not in name:
        names = ProcessNames(own=-1)  # until the child has become its program
    assert name.rpartition("/")[2] == f"{interpreter} detect.py"


def test_name_of_a_process_that_has_ended_is_the_fallback():
    child = subprocess.Popen(["true"])
    child.wait()
    assert ProcessNames().name(child.pid, "infer") == "infer"
    assert ProcessNames().name(None) is None


def test_busiest_process_is_first_and_its_time_is_the_kernels(start, tmp_path):
    path = script(tmp_path, "busiest_of_all.py")
    watch = ProcessWatch(top=100, known=ProcessNames(own=-1))
    watch.look()
    child = start(sys.executable, path)

    def has_worked(found: tuple[ProcessUse, ...]) -> bool:
        return any("busiest_of_all" in one.name and one.cpu_seconds > 0.2 for one in found)

    while not has_worked(found := watch.look()):
        pass
    (use,) = (one for one in found if "busiest_of_all" in one.name)
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    spent = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    assert 0.2 < use.cpu_seconds <= spent + 1e-6
    assert use.processes == 1
    assert use.memory_bytes > 1_000_000


def test_our_children_count_as_ours(start, tmp_path):
    start(sys.executable, script(tmp_path, "worker.py"))
    watch = ProcessWatch(top=0)
    while use_of(watch.look(), "tegrascope").processes < 2:
        pass
    assert {one.name for one in watch.look()} == {"tegrascope"}


class FakeTable:
    """A process table in a directory, which is read in place of /proc."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.proc.mkdir(exist_ok=True)
        self._ticks = os.sysconf("SC_CLK_TCK")

    def add(
        self,
        pid: int,
        name: str,
        cpu_seconds: float,
        started: float,
        command: bytes | None = None,
    ) -> None:
        """Begin a process, or let it work."""
        ticks = [round(seconds * self._ticks) for seconds in (cpu_seconds, started)]
        directory = self.proc / str(pid)
        directory.mkdir(exist_ok=True)
        fields = f"S 1 {pid} {pid} 0 -1 0 0 0 0 0 {ticks[0]} 0 0 0 20 0 1 0 {ticks[1]} 0"
        line = f"{pid} ({name}) {fields}{' 0' * 30}\n"
        (directory / "stat").write_bytes(line.encode("utf-8", "surrogateescape"))
        (directory / "statm").write_text("100 50 0 0 0 0 0\n")
        shown = f"/bin/{name}\0".encode() if command is None else command
        (directory / "cmdline").write_bytes(shown)

    def remove(self, pid: int) -> None:
        """End a process."""
        shutil.rmtree(self.proc / str(pid))


class HandClock(SystemClock):
    """A clock that the test sets."""

    seconds = 1_000_000.0

    def monotonic_ns(self) -> int:
        return int(self.seconds * 1e9)

    wall_ns = boottime_ns = monotonic_ns


@pytest.fixture
def table(tmp_path: Path) -> FakeTable:
    return FakeTable(tmp_path)


def test_a_program_that_is_called_other_is_counted_once(table, tmp_path):
    clock = HandClock()
    watch = ProcessWatch(top=1, known=ProcessNames(tmp_path, own=-1, clock=clock), clock=clock)
    for pid in range(1000, 1010):  # as many names as one day shows
        clock.seconds += 10
        table.add(pid, f"job{pid}", 0.5, clock.seconds)
        watch.look()
        table.remove(pid)
    clock.seconds += 10
    for pid, name in ((2000, "other"), (2001, "more")):
        table.add(pid, name, 0.5, clock.seconds)
    (found,) = watch.look()
    assert (found.name, found.processes) == ("other", 2)
    assert found.cpu_cores == pytest.approx(0.1)


def test_series_and_scrape_stay_bounded_under_thousands_of_short_lived_processes(table, tmp_path):
    """Each of 5,000 has a name of its own; a hundred at a time work, then a hundred others."""
    clock = HandClock()
    watch = ProcessWatch(top=10, known=ProcessNames(tmp_path, own=-1, clock=clock), clock=clock)
    live = LiveState(Snapshot())
    page = Page(lambda: live.snapshot, lambda: 0)
    shown: set[str] = set()
    pids: list[int] = []
    worked = 0.0
    for wave in range(50):
        for pid in pids:
            table.remove(pid)
        pids = list(range(1000 + 100 * wave, 1100 + 100 * wave))
        clock.seconds += 10
        for pid in pids:
            table.add(pid, f"job{pid}", 0.5, clock.seconds)
        found = watch.look()
        live.update(processes=found)
        shown.update(one.name for one in found)
        worked += sum(one.cpu_seconds for one in found if one.name != "other")
        series = [one for one in page.render("")[0].decode().splitlines() if "{process=" in one]
        assert len(series) <= 3 * (10 + 1)
    assert len(shown) == 100 + 1
    others = use_of(found, "other")
    assert worked + others.cpu_seconds == pytest.approx(0.5 * (100 + 40 * 100))
    assert (others.processes, others.cpu_cores) == (100, pytest.approx(5.0))
    clock.seconds += 86_400
    table.add(pids[0], f"job{pids[0]}", 9.5, clock.seconds - 86_400)
    assert [one.name for one in watch.look()] == [f"job{pids[0]}"]


def test_cores_in_use_are_those_since_the_last_look(table, tmp_path):
    clock = HandClock()
    watch = ProcessWatch(top=10, known=ProcessNames(tmp_path, own=-1, clock=clock), clock=clock)
    table.add(7, "detector", 100.0, clock.seconds - 500)
    assert watch.look() == ()
    clock.seconds += 4
    table.add(7, "detector", 106.0, clock.seconds - 504)
    (use,) = watch.look()
    assert (use.name, use.cpu_seconds, use.cpu_cores) == ("detector", 6.0, 1.5)


def test_configured_process_is_shown_however_idle(start):
    start("sleep", "600")
    watch = ProcessWatch(top=0, names=("sleep",), known=ProcessNames(own=-1))
    while not (found := watch.look()):
        pass
    assert [one.name for one in found] == ["sleep"]


def test_columns_come_once_after_each_look():
    looked = threading.Event()
    watch = ProcessWatch(top=0, on_look=lambda _: looked.set(), period_seconds=3600)
    watch.start()
    try:
        for _ in range(2):
            assert looked.wait(PATIENCE_SECONDS)
            looked.clear()
            assert set(by_name(watch.columns())) == {
                "process.cpu_seconds.tegrascope",
                "process.memory_bytes.tegrascope",
            }
            assert watch.columns() == {}
            watch.look_soon()
    finally:
        watch.stop()


HOSTILE = {
    "blank": (b" \0", "job"),
    "blank and one more": (b" \0-x\0", "job"),
    "tab": (b"\t\0x\0", "job"),
    "newline": (b"\n\0", "job"),
    "no-break space": ("\u00a0".encode() + b"\0", "job"),
    "invalid UTF-8": (b"/bin/\xff\xfe\0", "??"),
    "surrogate": ("/bin/\ud800".encode("utf-8", "surrogatepass") + b"\0", "???"),
    "5,000 characters": (b"/bin/" + 5000 * b"x" + b"\0", 64 * "x"),
    "escapes": (b"/bin/\x1b[31m\0", "?[31m"),
    "slashes": (b"////\0", "job"),
    "empty": (b"", "job"),
    "empty arguments": (b"\0\0\0", "job"),
    "interpreter without more": (b"python3\0-m\0", "python3 -m"),
    "colon": (b":\0", ":"),
}


@pytest.mark.parametrize(("command", "name"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_command_line_costs_nobody_else_a_row(table, tmp_path, command, name):
    clock = HandClock()
    watch = ProcessWatch(top=10, known=ProcessNames(tmp_path, own=-1, clock=clock), clock=clock)
    live = LiveState(Snapshot())
    clock.seconds += 10
    table.add(7, "job", 1.0, clock.seconds, command)
    table.add(8, "detector", 1.0, clock.seconds)
    found = watch.look()
    assert [use.name for use in found] == sorted([name, "detector"])
    live.update(processes=found)
    text, _ = Page(lambda: live.snapshot, lambda: 0).render("")
    assert b'process="detector"' in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [(" ", "unnamed"), ("", "unnamed"), ("a) S 1 (b", "a) S 1 (b"), ("\udcff\n", "?")],
)
def test_hostile_name_in_the_kernel_costs_nobody_else_a_row(table, tmp_path, name, shown):
    clock = HandClock()
    names = ProcessNames(tmp_path, own=-1, clock=clock)
    table.add(7, name, 1.0, clock.seconds, b"")
    assert names.name(7) == shown


def test_process_that_becomes_another_program_gets_its_name(table, tmp_path):
    """A shell forks and then executes: the first look may meet the copy of the shell."""
    clock = HandClock()
    names = ProcessNames(tmp_path, own=-1, clock=clock)
    seen = []
    for seconds, command in ((0, b""), (1, b"/bin/detector\0"), (5, b"/bin/detector\0")):
        table.add(7, "sh", 1.0, clock.seconds, command)
        seen.append(names.name_of(names.table.entry(7)._replace(started_ns=int(1e15))))
        clock.seconds = 1e6 + seconds
    assert seen == ["sh", "detector", "detector"]


def test_damaged_row_costs_nobody_else_a_row(table, tmp_path):
    clock = HandClock()
    watch = ProcessWatch(top=10, known=ProcessNames(tmp_path, own=-1, clock=clock), clock=clock)
    clock.seconds += 10
    for pid in range(1, 6):
        table.add(pid, f"job{pid}", 1.0, clock.seconds)
    (table.proc / "1/stat").write_text("nonsense")
    (table.proc / "2/stat").write_text("2 (job2) S 1")
    (table.proc / "3/statm").write_text("")
    (table.proc / "4/stat").unlink()
    assert [use.name for use in watch.look()] == ["job5"]


def test_blank_name_of_a_real_process_is_the_kernels():
    child = subprocess.Popen([" ", "600"], executable="/bin/sleep")
    try:
        names = ProcessNames(own=-1)
        while (name := names.name(child.pid)) is None or not name.endswith("sleep"):
            names = ProcessNames(own=-1)  # until the child has become its program
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("is_there", [False, True])
def test_hidden_table_is_a_problem_until_it_is_back(tmp_path, is_there):
    """A sandbox may hide /proc, or put an empty directory in its place."""
    looks = threading.Semaphore(0)
    if is_there:
        (tmp_path / "proc").mkdir()
    watch = ProcessWatch(
        top=1,
        known=ProcessNames(tmp_path),
        on_look=lambda _: looks.release(),
        period_seconds=3600,
    )
    watch.start()
    try:
        assert looks.acquire(timeout=PATIENCE_SECONDS)
        assert (watch.problem or "").startswith("/proc ")
        table = FakeTable(tmp_path)
        table.add(7, "job", 1.0, 0.0)
        watch.look_soon()
        assert looks.acquire(timeout=PATIENCE_SECONDS)
        assert watch.problem is None
    finally:
        watch.stop()


class SlowClock(HandClock):
    """Each look at the clock takes a tenth of a second; pauses are noted, and the last ends all."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.at_end: Callable[[], object] = lambda: None

    def monotonic_ns(self) -> int:
        self.seconds += 0.1
        return int(self.seconds * 1e9)

    wall_ns = boottime_ns = monotonic_ns

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        self.pauses.append(until_ns / 1e9 - self.seconds)
        if len(self.pauses) == 4:
            self.at_end()
        return event.is_set()


def test_looks_take_a_bounded_share_of_a_core(table, tmp_path):
    """The first pause is not cut by the edges of runs, the second one is."""
    clock = SlowClock()
    table.add(7, "job", 1.0, 0.0)
    watch = ProcessWatch(known=ProcessNames(tmp_path, clock=clock), clock=clock)
    ended = threading.Event()
    clock.at_end = lambda: (watch.stop(), ended.set())
    watch.start()
    assert ended.wait(PATIENCE_SECONDS)
    for rest, more in zip(clock.pauses[::2], clock.pauses[1::2], strict=True):
        took = rest * 0.05
        assert took > 0.2
        assert rest + more >= 90 * took
