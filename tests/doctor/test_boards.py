"""Examinations of simulated boards."""

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tegrascope.collectors.board.machine import Answer, HostMemory, Machine
from tegrascope.workbench.commands.doctor import GROUPS, as_document, as_lines, examine, summary
from tegrascope.workbench.doctor.findings import Finding
from tests.fakes.processes import Stopwatch

from .boards import GIB, GOOD_TENSORRT, NANO, NO_TENSORRT, NX, ORIN, Played, Tree, context, orin

CAPTURES, FAKES = (Path(__file__).parents[1] / name for name in ("captures", "fakes"))
DLA_WORKLOAD = {"name": "w", "model": "builtin:resnet50", "device": "dla0"}


def by_check(found: "Iterable[Finding]") -> "dict[str, Finding]":
    return {one.check: one for one in found}


def levels(found: "Iterable[Finding]", level: str) -> "set[str]":
    return {one.check for one in found if one.level == level}


def test_good_board_has_nothing_missing_or_broken(tmp_path):
    tree = orin(tmp_path)
    found = list(examine(context(tree.machine(uid=0), workloads=[DLA_WORKLOAD])))
    assert levels(found, "missing") | levels(found, "broken") == set()
    assert not any(one.blocking for one in found)
    by_name = by_check(found)
    assert by_name["board"].message == (
        "NVIDIA Jetson AGX Orin Developer Kit, Jetson Linux 36.4.3 (JetPack 6.2)"
    )
    assert by_name["tegrastats"].level == by_name["root_fields"].level == "good"
    assert by_name["rails"].facts["rule"] == "AGX Orin"
    assert by_name["tensorrt_dla"].facts["cores"] == 2
    assert by_name["workload"].message == "w can run: tensorrt on dla0"


def test_board_without_root_reports_the_absent_fields(tmp_path):
    tree = orin(tmp_path).tegrastats("--unprivileged")
    shut = (
        "/dev/nvhost-ctrl-nvdla0",
        "/sys/kernel/tracing",
        "/sys/kernel/tracing/events/nvdla_ftrace",
    )
    found = list(examine(context(tree.machine(shut=shut, records=None))))
    by_name = by_check(found)
    assert by_name["root_fields"].facts["lacks"] == ["EMC", "engines", "DLA"]
    assert "tegrascope-tegrastats.socket" in (by_name["root_fields"].remedy or "")
    assert "usermod -aG" in (by_name["dla_nodes"].remedy or "") or "root" in (
        by_name["dla_nodes"].remedy or ""
    )
    assert by_name["dla_events"].level == by_name["dla_messages"].level == "note"
    assert not any(one.blocking for one in found)


def test_container_without_nodes_gets_the_docker_option(tmp_path):
    tree = orin(tmp_path).write("/.dockerenv")
    for node in tmp_path.glob("dev/*"):
        node.unlink()
    by_name = by_check(examine(context(tree.machine())))
    assert by_name["dla_nodes"].level == "missing"
    assert "docker run" in (by_name["dla_nodes"].remedy or "")
    assert by_name["container"].level == "note"


CONTAINER_PAGE = Path(__file__).parents[2] / "docs/container.md"


def lacks_of(found: "Iterable[Finding]") -> "dict[str, str]":
    """Return the argument of docker run by what the container lacks."""
    return {
        str(one.facts["path"]): str(one.remedy).partition(";")[0].removeprefix("docker run ")
        for one in found
        if one.check == "container_lacks"
    }


def test_empty_container_is_told_each_argument(tmp_path):
    tree = Tree(tmp_path).write("/.dockerenv").write("/proc/2/comm", "sleep\n")
    no_cuda = Answer(1, "", "libcuda.so.1: no")
    machine = tree.machine(uid=0, cuda=no_cuda, architecture="aarch64")
    found = list(examine(context(machine, NO_TENSORRT, telemetry={"processes": {}})))
    lacks = lacks_of(found)
    assert lacks == {
        "/dev/nvmap": "--runtime nvidia",
        "/dev/nvhost-*": "--runtime nvidia",
        "/sys/devices/*": "-v /sys:/sys:ro",
        "/proc/device-tree/model": "--security-opt systempaths=unconfined",
        "/etc/nv_tegra_release": "-v /etc/nv_tegra_release:/etc/nv_tegra_release:ro",
        "/var/lib/nvpmodel": "-v /var/lib/nvpmodel:/var/lib/nvpmodel:ro",
        "/etc/nvpmodel.conf": "-v /etc/nvpmodel.conf:/etc/nvpmodel.conf:ro",
        "/sys/kernel/debug/*": "-v /sys/kernel/debug:/sys/kernel/debug:ro",
        "/proc of the host": "--pid host",
    }
    by_name = by_check(found)
    remedy = "docker run -v /run/tegrascope:/run/tegrascope; in compose volumes:"
    assert (by_name["socket"].remedy or "").startswith(remedy)
    remedy = "docker run -v /usr/bin/tegrastats:/usr/bin/tegrastats:ro; in compose volumes:"
    assert (by_name["tegrastats"].remedy or "").startswith(remedy)
    page = CONTAINER_PAGE.read_text(encoding="utf-8")
    for argument in (*lacks.values(), "-v /run/tegrascope:/run/tegrascope"):
        assert argument in page


@pytest.mark.parametrize(
    ("marker", "environ"),
    [
        ("/.dockerenv", {}),
        ("/run/.containerenv", {}),
        ("/tmp/nothing", {"container": "podman"}),
        ("/tmp/nothing", {"KUBERNETES_SERVICE_HOST": "10.43.0.1"}),
    ],
)
def test_container_with_everything_lacks_nothing(tmp_path, marker, environ):
    tree = orin(tmp_path).write(marker).write("/dev/nvmap").write("/proc/2/comm", "kthreadd\n")
    machine = tree.machine()
    machine = replace(machine, environ={**machine.environ, **environ})
    found = list(examine(context(machine, telemetry={"processes": {}})))
    assert by_check(found)["container"].level == "note"
    assert lacks_of(found) == {}


def test_container_may_lack_the_group_of_its_devices(tmp_path):
    tree = orin(tmp_path).write("/.dockerenv").write("/dev/nvmap")
    machine = tree.machine(shut=("/dev/nvmap",))
    group = machine.group_of("/dev/nvmap")
    found = list(examine(context(machine)))
    assert lacks_of(found) == {"/dev/nvmap": f"--group-add {group}"}
    (line,) = (one for one in found if one.check == "container_lacks")
    assert line.remedy == f'docker run --group-add {group}; in compose group_add: ["{group}"]'


def test_board_that_is_not_in_a_container_has_no_lines_about_one(tmp_path):
    found = list(examine(context(orin(tmp_path).machine())))
    assert not any(one.check.startswith("container") for one in found)


def test_orin_nano_without_dla_gets_a_note(tmp_path):
    tree = orin(tmp_path).write("/proc/device-tree/compatible", NANO)
    for node in tmp_path.glob("dev/*"):
        node.unlink()
    no_dla = context(tree.machine()).tensorrt.model_copy(update={"dla_cores": 0})
    plain = by_check(examine(context(tree.machine(), no_dla)))
    assert plain["dla"].level == "note"
    assert plain["tensorrt_dla"].level == "note"
    wanting = by_check(examine(context(tree.machine(), no_dla, workloads=[DLA_WORKLOAD])))
    assert wanting["workload"].blocking
    assert "0 DLA core(s)" in wanting["workload"].message


APT_LIST = "/etc/apt/sources.list.d/nvidia-l4t-apt-source.list"
REPOSITORY = "deb https://repo.download.nvidia.com/jetson/common"


def test_orin_nx_is_warned_before_a_jetpack_without_its_dla(tmp_path):
    """A note by itself; more as soon as apt would make that upgrade."""
    tree = orin(tmp_path).write("/proc/device-tree/compatible", NX)
    tree.write(APT_LIST, f"{REPOSITORY} r36.4 main\n# {REPOSITORY} r39.2 main\n")
    note = by_check(examine(context(tree.machine())))["dla_upgrade"]
    assert (note.level, note.remedy) == ("note", "stay on JetPack 6")
    tree.write(APT_LIST, f"{REPOSITORY} r36.4 main\n{REPOSITORY} r39.2 main\n")
    found = by_check(examine(context(tree.machine())))["dla_upgrade"]
    assert found.level == "missing"
    assert found.facts == {"release": "39.2", "file": APT_LIST}
    assert found.remedy == f"name the release that you have, 36.4.3, in {APT_LIST}"


@pytest.mark.parametrize(
    ("compatible", "release"), [(NX, "39 (release), REVISION: 2.0"), (ORIN, "36 (release)")]
)
def test_others_and_a_board_that_was_upgraded_get_no_such_warning(tmp_path, compatible, release):
    tree = orin(tmp_path).write("/proc/device-tree/compatible", compatible)
    tree.write("/etc/nv_tegra_release", f"# R{release}, GCID: 1").write(APT_LIST, "deb r39.2\n")
    assert "dla_upgrade" not in by_check(examine(context(tree.machine())))


@pytest.mark.parametrize("libraries", [(), ("cudla",)])
def test_a_loadable_needs_cudla(tmp_path, libraries):
    machine = orin(tmp_path).machine(libraries=libraries)
    work = {**DLA_WORKLOAD, "backend": "cudla"}
    found = by_check(examine(context(machine, workloads=[work])))["workload"]
    assert found.blocking is not bool(libraries)
    assert ("no libcudla.so" in found.message) is not bool(libraries)


def test_pc_is_reported_as_not_a_jetson(tmp_path):
    tree = Tree(tmp_path)
    (tmp_path / "var/lib").mkdir(parents=True)
    found = list(
        examine(context(tree.machine(cuda=Answer(1, "", "libcuda.so.1: no")), NO_TENSORRT))
    )
    assert {one.check for one in found if one.blocking} == {"telemetry"}
    assert levels(found, "broken") == set()
    by_name = by_check(found)
    assert by_name["board"].message == "a PC or a server (x86_64)"
    assert by_name["telemetry"].remedy == "telemetry: {source: simulator} in a file for -c"
    assert summary(found).splitlines()[-1].endswith(": telemetry: {source: simulator}")


@pytest.mark.parametrize("marker", ["/tmp/nothing", "/.dockerenv"])
@pytest.mark.parametrize(("has_gpu", "architecture"), [(False, "x86_64"), (True, "aarch64")])
def test_a_machine_that_is_no_jetson_has_no_rows_of_one(tmp_path, marker, has_gpu, architecture):
    """No device node, socket or DLA of a board is missing on a PC, in a container or not."""
    tree = Tree(tmp_path).write(marker)
    (tmp_path / "var/lib").mkdir(parents=True)
    machine = asked(tree) if has_gpu else tree.machine(cuda=Answer(1, "", "libcuda.so.1: no"))
    machine = replace(machine, architecture=architecture)
    no_dla = GOOD_TENSORRT.model_copy(update={"device": "NVIDIA H200", "dla_cores": 0})
    found = list(examine(context(machine, no_dla)))
    names = {one.check for one in found}
    assert not names & {"container_lacks", "tegrastats", "socket", "dla", "tensorrt_dla"}
    words = " ".join(f"{one.message} {one.remedy}" for one in found)
    for foreign in ("nvmap", "nvhost", "nvpmodel", "DLA", "tegrastats.sock"):
        assert foreign not in words


def test_a_container_with_a_jetsons_device_node_may_be_one(tmp_path):
    machine = Tree(tmp_path).write("/.dockerenv").write("/dev/nvmap").machine()
    found = examine(context(replace(machine, architecture="x86_64"), NO_TENSORRT), GROUPS[:2])
    assert {"container_lacks", "tegrastats"} <= {one.check for one in found}


def asked(tree: Tree, **what: object) -> Played:
    """Return a machine on which NVML does what it is asked for."""
    tree.write("/proc/driver/nvidia/version", "NVRM version: 580.1")
    environ = {"PYTHONPATH": str(FAKES), "FAKE_NVML": json.dumps(what)}
    plain = tree.machine(cuda=Answer(1, "", "libcuda.so.1: no"))
    return replace(plain, environ={**plain.environ, **environ})


@pytest.mark.parametrize(
    ("what", "message", "remedy"),
    [
        ({}, "NVML reports Fake GPU 0", "telemetry: {source: nvml}"),
        ({"absent": True}, "No module named 'pynvml'", "pip install nvidia-ml-py"),
        ({"init": 18}, "another version", "nvidia-smi works; then telemetry: {source: nvml}"),
    ],
)
def test_pc_with_an_nvidia_gpu_is_offered_nvml_first(tmp_path, what, message, remedy):
    found = by_check(examine(context(asked(Tree(tmp_path), **what), NO_TENSORRT), GROUPS[:2]))
    assert found["telemetry"].blocking
    assert message in found["telemetry"].message
    assert remedy in (found["telemetry"].remedy or "")
    assert summary(list(found.values())).endswith("with -c: telemetry: {source: nvml}")
    assert (found["board"].remedy or "").startswith("telemetry: {source: nvml}")


THOR = "nvidia,p3971-0089+p3834-0008\0nvidia,tegra264\0"
BESIDE_CALLS = {
    "GPU load": ("UtilizationRates",),
    "power": ("FieldValues", "PowerUsage"),
    "memory by process": ("ComputeRunningProcesses", "GraphicsRunningProcesses"),
}


def thor(root: Path) -> Tree:
    """Return a Thor, which has no DLA; its tegrastats prints a recorded line."""
    line = (CAPTURES / "agx-thor__r39.2.0.txt").read_text(encoding="utf-8").splitlines()[0]
    tree = Tree(root).script("tegrastats", f"while echo '{line}'; do sleep 0.05; done")
    tree.write("/proc/device-tree/model", "NVIDIA Jetson AGX Thor Developer Kit\0")
    tree.write("/etc/nv_tegra_release", "# R39 (release), REVISION: 2.0, GCID: 1\n")
    return tree.write("/proc/device-tree/compatible", THOR)


@pytest.mark.parametrize("lacks", [(), *((one,) for one in BESIDE_CALLS), tuple(BESIDE_CALLS)])
def test_thor_is_told_what_nvml_gives_beside_tegrastats(tmp_path, lacks):
    refuse = {call: 3 for one in lacks for call in BESIDE_CALLS[one]}
    machine = asked(thor(tmp_path), refuse=refuse)
    found = by_check(examine(context(machine), GROUPS[1:2]))["nvml"]
    assert found.level == ("note" if lacks else "good")
    assert found.facts["lacks"] == list(lacks)
    assert found.facts["gives"] == [one for one in BESIDE_CALLS if one not in lacks]
    assert all(one in found.message for one in BESIDE_CALLS)
    assert "\n" not in found.message


def test_thor_without_the_package_is_told_to_install_it(tmp_path):
    found = by_check(examine(context(asked(thor(tmp_path), absent=True)), GROUPS[1:2]))["nvml"]
    assert (found.level, found.blocking) == ("missing", False)
    assert "pip install nvidia-ml-py" in (found.remedy or "")


def test_thor_without_a_dla_misses_none(tmp_path):
    """Each word about a DLA says that the board has none."""
    tensorrt = context(thor(tmp_path).machine()).tensorrt.model_copy(update={"dla_cores": 0})
    found = list(examine(context(asked(Tree(tmp_path / "other")), tensorrt), GROUPS[:1]))
    found += examine(context(asked(thor(tmp_path / "thor")), tensorrt), GROUPS[:4])
    about = [f"{one.message} {one.remedy}" for one in found if "DLA" in one.message]
    assert about
    assert all("no DLA" in words for words in about)
    lacks = by_check(found)["root_fields"].facts["lacks"]
    assert isinstance(lacks, list)
    assert "DLA" not in lacks


def test_orin_is_not_asked_for_nvml(tmp_path):
    """Its NVML supports none of the values; asked for, that is one note."""
    machine = asked(orin(tmp_path), absent=True)
    assert "nvml" not in by_check(examine(context(machine), GROUPS[1:2]))
    calls = {call: 3 for calls in BESIDE_CALLS.values() for call in calls}
    machine = asked(Tree(tmp_path / "again"), refuse=calls)
    settings = {"telemetry": {"source": "simulator", "nvml": {"beside": True}}}
    found = by_check(examine(context(machine, **settings), GROUPS[1:2]))["nvml"]
    assert (found.level, found.facts["gives"]) == ("note", [])


@contextlib.contextmanager
def served(tree: Tree, text: "bytes | None"):
    """Serve root's lines to each connection; ``None`` keeps it open without any."""
    path = tree.root / "run/tegrascope/tegrastats.sock"
    path.parent.mkdir(parents=True)
    tree.write(
        "/proc/net/unix",
        "Num RefCount Protocol Flags Type St Inode Path\n"
        "0: 00000002 00000000 00010000 0001 01 12345 /run/tegrascope/tegrastats.sock\n",
    )
    kept = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                if text is None:
                    kept.append(peer)
                else:
                    peer.sendall(text)
                    peer.close()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(4)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    for peer in kept:
        peer.close()


def test_socket_line_counts(tmp_path):
    """A line from the socket stands for tegrastats; no socket, and no line, do not."""
    tree = orin(tmp_path)
    (tmp_path / "usr/bin/tegrastats").unlink()
    alone = by_check(examine(context(tree.machine()), GROUPS[1:2]))
    assert alone["tegrastats"].blocking
    with served(tree, b"nothing\nRAM 1/2MB (lfb 1x4MB) CPU [1%@729] EMC_FREQ 0%@2133\n"):
        found = by_check(examine(context(tree.machine()), GROUPS[1:2]))
    assert (found["tegrastats"].level, found["tegrastats"].blocking) == ("note", False)
    assert found["socket"].level == "good"
    assert found["root_fields"].facts["lacks"] == ["engines", "DLA", "rails"]


@pytest.mark.parametrize(
    ("text", "seconds", "has_program", "message"),
    [
        (b"", 0.2, False, "is closed before it gives a sample"),
        (None, 0.2, False, "gives no sample within 0.2 s"),
        (b"", 20.0, True, "is closed before it gives a sample"),
    ],
)
def test_mute_socket_is_broken(tmp_path, text, seconds, has_program, message):
    """A socket that listens and gives no line is broken, and is no telemetry."""
    tree = orin(tmp_path).tegrastats("--unprivileged")
    if not has_program:
        (tmp_path / "usr/bin/tegrastats").unlink()
    with served(tree, text):
        asked = replace(context(tree.machine()), telemetry_seconds=seconds)
        found = by_check(examine(asked, GROUPS[1:2]))
    assert found["socket"].level == "broken"
    assert message in found["socket"].message
    assert "journalctl" in (found["socket"].remedy or "")
    assert found["tegrastats"].blocking == (not has_program)
    if has_program:
        assert "the service gets the rest" not in found["root_fields"].message


def test_jetpack_5_is_told_what_works(tmp_path):
    tree = orin(tmp_path)
    assert "python" not in by_check(examine(context(tree.machine()), GROUPS[:1]))
    tree.write("/etc/nv_tegra_release", "# R35 (release), REVISION: 6.0, GCID: 1, BOARD: x\n")
    found = by_check(examine(context(tree.machine()), GROUPS[:1]))
    assert "trtexec" in (found["python"].remedy or "")


def test_service_without_a_sample_stops_the_main_job(tmp_path):
    tree = orin(tmp_path)

    class Ill(type(tree.machine())):
        def get(self, *asked: object) -> Answer:
            if "/healthz" in asked:
                return Answer(200, "ok\n", "OK")
            return Answer(503, "no fresh sample from tegrastats: tegrastats was not found\n", "")

    machine = tree.machine()
    ill = Ill(root=machine.root, environ=machine.environ, uid=1000)
    found = list(examine(context(ill)))
    (stopped,) = (one for one in found if one.blocking)
    assert (stopped.check, stopped.level) == ("daemon", "broken")
    assert "tegrastats was not found" in stopped.message
    assert not as_document(found).ok


def test_simulated_telemetry_needs_no_board(tmp_path):
    (tmp_path / "var/lib").mkdir(parents=True)
    found = list(
        examine(context(Tree(tmp_path).machine(), NO_TENSORRT, telemetry={"source": "simulator"}))
    )
    assert not any(one.blocking for one in found)


@pytest.mark.parametrize(
    ("body", "seconds", "message"),
    [
        ("sleep 600", 0.5, "printed 0 line(s)"),
        ("echo 'tegrastats: not for you' >&2; exit 3", 30, "ended with status 3 (tegrastats: not"),
        ("while :; do echo garbage; sleep 0.01; done", 2, "no line that is a sample: 'garbage'"),
        ("printf 'RAM 1/2MB (lfb 1x1MB) CPU [1%@1'; sleep 600", 0.5, "printed 0 line(s)"),
    ],
    ids=["silent", "ends", "garbage", "half a line"],
)
def test_tegrastats_without_samples_is_broken(tmp_path, body, seconds, message):
    tree = orin(tmp_path).script("tegrastats", body)
    asked = replace(context(tree.machine()), telemetry_seconds=seconds)
    found = by_check(examine(asked, GROUPS[1:2]))
    assert found["tegrastats"].level == "broken"
    assert found["tegrastats"].blocking
    assert message in found["tegrastats"].message


def test_tegrastats_that_stops_early_is_a_note(tmp_path):
    tree = orin(tmp_path)
    program = f"{sys.executable} -m tegrascope simulate | head -n 1"
    found = by_check(examine(context(tree.script("tegrastats", program).machine()), GROUPS[1:2]))
    assert (found["tegrastats"].level, found["tegrastats"].blocking) == ("note", False)
    assert "ended with status 0" in found["tegrastats"].message


def test_check_that_hangs_or_fails_does_not_stop_the_others():
    released = threading.Event()

    def hangs(_):
        yield Finding(check="first", level="good", message="found before")
        released.wait(300)

    def fails(_):
        yield Finding(check="second", level="good", message="found before")
        raise RuntimeError("boom")

    def works(_):
        yield Finding(check="third", level="good", message="found")

    watch = Stopwatch()
    groups = (("hangs", hangs, 0.2), ("fails", fails, 5.0), ("works", works, 5.0))
    found = list(examine(context(Machine()), groups))
    assert watch.seconds < 5
    assert [one.check for one in found] == ["first", "hangs", "second", "fails", "third"]
    assert "no answer within 0.2 s" in found[1].message
    assert "RuntimeError: boom" in found[3].message
    released.set()


@pytest.mark.parametrize("path", ["/etc/nv_tegra_release", "/proc/mounts"])
def test_file_that_never_answers_affects_only_its_group(tmp_path, path):
    tree = orin(tmp_path)
    (tmp_path / path.lstrip("/")).unlink()
    os.mkfifo(tmp_path / path.lstrip("/"))  # whose opening waits for a writer that never comes
    watch = Stopwatch()
    found = list(
        examine(
            replace(context(tree.machine()), board_seconds=0.2),
            tuple((n, c, 4.0) for n, c, _ in GROUPS),
        )
    )
    assert watch.seconds < 20
    assert {one.group for one in found} == {name for name, _, _ in GROUPS}
    assert len([one for one in found if "no answer within" in one.message]) <= 1
    for node in tmp_path.rglob("*"):  # let the threads go that wait there
        if node.is_fifo():
            os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK))


def test_nothing_is_changed(tmp_path):
    tree = orin(tmp_path)
    machine = tree.machine()

    def look() -> "dict[str, tuple[int, ...]]":
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_mode, path.stat().st_size)
            for path in tmp_path.rglob("*")
        }

    before = look()
    list(examine(context(machine, workloads=[DLA_WORKLOAD])))
    assert look() == before


@pytest.mark.parametrize("board", ["good", "poor", "pc"])
def test_report_fits_a_terminal(tmp_path, board):
    tree = Tree(tmp_path) if board == "pc" else orin(tmp_path)
    changes = {"records": None, "packages": (), "cuda": Answer(-11, "", "")}
    if board == "poor":
        tree.tegrastats("--unprivileged")
        changes["host_memory"] = HostMemory(GIB, GIB // 2, 0)
    machine = tree.machine(**({} if board == "good" else changes))
    found = list(examine(context(machine, NO_TENSORRT, workloads=[DLA_WORKLOAD])))
    lines = list(as_lines(found, colour=False))
    assert [line for line in lines if len(line) > 80] == []
    assert not any("\x1b" in line for line in lines)
    assert any("\x1b[" in line for line in as_lines(found, colour=True))
    for one in found:
        if one.level in ("missing", "broken"):
            assert one.remedy, one
            for piece in one.remedy.split(" && "):
                assert any(piece.split(", ")[0].split("; ")[0] in line for line in lines), piece


def test_document_has_counts_and_verdict(tmp_path):
    found = list(examine(context(Tree(tmp_path).machine(), NO_TENSORRT)))
    document = as_document(found).model_dump()
    assert document["format"] == 1
    assert document["ok"] is False
    assert sum(document["counts"].values()) == len(document["findings"]) == len(found)
    assert set(document["findings"][0]) == {
        *("group", "check", "level", "message", "remedy", "blocking", "facts"),
    }
