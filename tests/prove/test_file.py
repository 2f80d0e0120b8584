"""The file that is sent has all evidence and nothing private; a kill loses and leaves nothing."""

import json
import os
import random
import re
import string
import subprocess
import sys
import zipfile
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tegrascope.parsers.errors import UserError
from tegrascope.workbench.cli import main
from tegrascope.workbench.commands.prove import examine
from tegrascope.workbench.prove.belief import Evidence, verdict_of
from tegrascope.workbench.prove.probes import BoardAccess, Probe, probes
from tegrascope.workbench.prove.report import as_lines, boards_page, captures, read, write
from tegrascope.workbench.prove.runner import CHECKS, SavedEvidence, gather, verdicts
from tegrascope.workbench.prove.scrub import leaks, private_words
from tests.golden import record_of

from .boards import board_at, play

ROOT = Path(__file__).parents[2]
# A campaign takes more of them.
KILLS = int(os.environ.get("PROVE_KILLS", "6"))
FACTS = ("model: NVIDIA Jetson AGX Orin", "module: AGX Orin", "l4t: 36.4.3", "jetpack: 6.2")
LINE = "RAM 936/3964MB (lfb 366x4MB) GR3D_FREQ 99%@921 VDD_IN 5139mW/4890mW"


@pytest.fixture
def place():
    """A directory with a short path, as a socket needs."""
    with TemporaryDirectory(prefix="prove") as folder:
        yield Path(folder)


def secrets(count: int, seed: int = 7) -> list[str]:
    """Return made-up names, addresses, paths, numbers and tokens."""
    chance = random.Random(seed)

    def some(letters: str, length: int) -> str:
        return "".join(chance.choice(letters) for _ in range(length))

    def name() -> str:
        return some("bcdfghjklmnpqrstvwz", 1).upper() + some(string.ascii_lowercase, 7)

    made = [
        lambda: name().lower(),
        name,
        lambda: f"{name().lower()}-orin-{chance.randrange(100)}",
        lambda: f"{name().lower()}.local",
        lambda: ".".join(str(chance.randrange(10, 255)) for _ in range(4)),
        lambda: ":".join(some("0123456789abcdef", 2) for _ in range(6)),
        lambda: ":".join(some("0123456789abcdef", 4) for _ in range(8)),
        lambda: f"fe80::{some('0123456789abcdef', 4)}:{some('0123456789abcdef', 4)}",
        lambda: f"{name().lower()}@{name().lower()}.com",
        lambda: f"/home/{name().lower()}/models/{name()}.onnx",
        lambda: f"/opt/{name()}/{name().lower()}.engine",
        lambda: some(string.digits, 13),
        lambda: f"ghp_{some(string.ascii_letters + string.digits, 30)}",
        lambda: some("0123456789abcdef", 40),
        lambda: f"{some('0123456789abcdef', 8)}-{some('0123456789abcdef', 4)}",
        lambda: some(string.ascii_uppercase, 9),
    ]
    return [made[at % len(made)]() for at in range(count)]


def run_all(board, name: str = "agx-orin") -> dict[str, Evidence]:
    memory = SavedEvidence(board.work.parent, name)
    for _ in gather(board, memory, changes=True):
        pass
    return memory.found


def test_file_has_none_of_200_planted_secrets(place):
    """Each field of the tree, each output and each program says one, before and after its text."""
    board, planted = play(place), secrets(200)
    fields = sorted(
        path
        for path in (*place.glob("board/[!u]*/**/*"), *place.glob("data/*"))
        if path.is_file() and path.name not in ("unit", "hostname", "passwd")
    )
    homes: dict[Path, list[str]] = {path: [] for path in fields}
    for at, secret in enumerate(planted):
        homes[fields[at % len(fields)]].append(secret)
    for path, words in homes.items():
        own = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            document = json.loads(own)
            text = json.dumps(_with_secrets(document, iter(words * 9))) + "\n"
        else:
            tail = "\0" if own.endswith("\0") else "\n"
            text = "".join(f"{line} {' '.join(words)}\n" for line in own.strip("\0\n").split("\n"))
            text = text.rstrip("\n") + f"\n{' '.join(words)}{tail}"
        path.write_text(text, encoding="utf-8")
    assert sum(map(len, homes.values())) == 200
    assert min(map(len, homes.values())) >= 1
    found = run_all(board)
    write(place / "p.zip", found, private_words(board.machine))
    with zipfile.ZipFile(place / "p.zip") as file:
        sent = "\n".join(file.read(name).decode() for name in file.namelist())
    assert len(sent) > 10_000
    assert [secret for secret in planted if secret in sent] == []
    names = {part for secret in planted for part in re.findall("[A-Za-z]{6,}", secret)}
    assert {name for name in names if name in sent} <= {"models", "engine"}
    for word in ("alice", "workbench", "1423019123456", str(place)):
        assert word not in sent


def _with_secrets(value, words):
    """Return a document with a secret behind each of its texts, as long as there are some."""
    if isinstance(value, dict):
        return {key: _with_secrets(one, words) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_secrets(one, words) for one in value]
    return f"{value} {next(words, '')}".strip() if isinstance(value, str) else value


@pytest.mark.parametrize("secret", ["alice", "10.0.0.7", "48:b0:2d:aa:bb:cc", "/home/x", "1" * 13])
def test_second_scan_refuses_to_write(tmp_path, secret):
    found = {"board": Evidence(missing=f"as {secret} says")}
    with pytest.raises(UserError, match="may be private"):
        write(tmp_path / "p.zip", found, ["alice"])
    assert list(tmp_path.iterdir()) == []


def test_line_that_was_not_scrubbed_is_refused(tmp_path):
    with pytest.raises(UserError, match="may be private"):
        write(tmp_path / "p.zip", {"x": Evidence(lines=("a Strangers word",))}, [])


def test_user_with_a_word_of_the_hardware_is_no_leak():
    assert leaks("NVIDIA Jetson AGX Orin", ["Orin", "nvidia"]) == []


def test_show_prints_all_that_is_in_the_file(place, capsys):
    found = run_all(play(place))
    write(place / "p.zip", found, [])
    assert main(["prove", "--show", str(place / "p.zip")]) == 0
    shown = capsys.readouterr().out
    for name, evidence in found.items():
        assert f"evidence {name}: " in shown
        for text in (*evidence.lines, *map(str, evidence.at_seconds), evidence.missing or ""):
            assert text in shown
    assert shown.rstrip("\n") == "\n".join(as_lines(read(place / "p.zip"))).rstrip("\n")


def test_reports_merge_by_board_and_release(tmp_path):
    known = {"board": Evidence(lines=FACTS), "tegrastats": Evidence(lines=(LINE,))}
    other = {"board": Evidence(lines=FACTS), "tegrastats": Evidence(lines=(f"{LINE} XX 1",))}
    paths = []
    for at, found in enumerate((known, known, other)):
        paths.append(tmp_path / f"{at}.zip")
        write(paths[-1], found, [])
    argv = ["prove", "--report", *map(str, paths), "-o", str(tmp_path / "boards.md")]
    assert main([*argv, "--captures", str(tmp_path)]) == 0
    page = (tmp_path / "boards.md").read_text(encoding="utf-8")
    assert page == boards_page([read(path) for path in paths])
    (row,) = [line for line in page.splitlines() if line.startswith("| NVIDIA Jetson AGX Orin |")]
    assert row.split(" | ")[1:5] == ["6.2", "36.4.3", read(paths[0]).tegrascope, "3"]
    assert "Every line of your tegrastats is read completely" in page.partition("## Refuted")[2]
    capture = tmp_path / "agx-orin__r36.4.3.txt"
    assert capture.read_text(encoding="utf-8").splitlines() == [LINE, f"{LINE} XX 1"]
    assert '"gpu"' in record_of(LINE)


def test_board_without_release_gives_no_capture():
    assert captures([]) == {}


@pytest.mark.parametrize("text", [b"", b"PK", b"{}"])
def test_other_file_is_one_line(tmp_path, capsys, text):
    (tmp_path / "p.zip").write_bytes(text)
    assert main(["prove", "--show", str(tmp_path / "p.zip")]) == 1
    assert "is not a file of tegrascope prove: name another" in capsys.readouterr().err


def test_killed_runs_lose_and_leave_nothing(place):
    """Each run is killed at a random moment; the last one is left to end."""
    board, chance = play(place), random.Random(KILLS)
    before = _tree(place / "board")
    argv = [sys.executable, "-m", "tests.prove.examine", str(place), str(place / "p.zip")]
    kills = resumed = 0
    while kills < KILLS:
        child = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            child.communicate(timeout=chance.uniform(0.3, 3.0))
        except subprocess.TimeoutExpired:
            child.kill()
            _, words = child.communicate()
            kills += 1
            resumed += b"goes on after" in words
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    assert resumed > 0
    found = read(place / "p.zip").found
    assert found.keys() == probes().keys()
    with TemporaryDirectory(prefix="prove") as other:
        calm = run_all(play(Path(other)))
    left, right = (
        {name: one.state for name, one in verdicts(each).items()} for each in (found, calm)
    )
    # Arrivals are those of a machine that may be busy.
    assert left | {"lines_at_once": None} == right | {"lines_at_once": None}, done.stdout
    assert (place / "data/unit").read_text(encoding="utf-8") == "inactive\n"
    assert not (place / "state/prove").exists()
    assert _tree(board.machine.root) == before
    assert _processes(str(place)) == []


def _tree(root: Path) -> dict[str, bytes]:
    """Return the files of a board, without those in which the played hardware counts."""
    return {
        str(path): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
        and path.name not in ("runtime_active_time", "utilization_rate", "meminfo")
    }


def _processes(place: str) -> list[str]:
    """Return the commands of processes that work in a place."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if place in words:
            found.append(words.replace("\0", " "))
    return found


def test_change_of_a_killed_run_is_undone_first(place):
    board = play(place)
    (place / "data/unit").write_text("active\n", encoding="utf-8")
    memory = SavedEvidence(board.work.parent, "x")
    memory.restore = ["systemctl", "stop", "tegrascope.service"]
    memory.save()
    again = SavedEvidence(board.work.parent, "x")
    next(gather(board, again))
    assert (place / "data/unit").read_text(encoding="utf-8") == "inactive\n"
    assert SavedEvidence(board.work.parent, "x").restore == []


def test_change_that_cannot_be_undone_is_named_and_kept(place):
    board = play(place)
    board.sudo = None
    memory = SavedEvidence(board.work.parent, "x")
    memory.restore = ["systemctl", "stop", "tegrascope.service"]
    memory.save()
    with pytest.raises(UserError, match=r"sudo systemctl stop tegrascope\.service"):
        next(gather(board, memory))
    assert SavedEvidence(board.work.parent, "x").restore


def test_nothing_is_changed_without_leave(place):
    board = play(place)
    memory = SavedEvidence(board.work.parent, "x")
    changing = {name: probe for name, probe in probes().items() if probe.changes}
    assert changing
    assert list(gather(board, memory, probes=changing)) == []
    verdict = verdict_of("unit_starts", CHECKS, memory.found)
    assert (verdict.state, verdict.remedy) == ("not here", "tegrascope prove --allow-changes")


def test_time_is_shared_by_all_probes(place):
    """A probe gets what is left, and none starts when the time is over."""
    times, given = iter(range(0, 10_000, 100)), []

    class Timed(BoardAccess):
        def run(self, _argv, seconds, **_):
            given.append(seconds)
            return Evidence()

    board = Timed(play(place).machine, place / "state/prove/work")
    known = {str(at): Probe(about="x", seconds=150.0, run="run") for at in range(5)}
    memory = SavedEvidence(board.work.parent, "x")
    names = list(
        gather(board, memory, seconds=320.0, probes=known, clock=lambda: float(next(times)))
    )
    assert (names, given) == (["0", "1", "2"], [150.0, 120.0, 20.0])
    assert memory.found["4"].missing == "the time was over"


def test_quick_run_leaves_out_what_takes_minutes(place):
    board = play(place)
    memory = SavedEvidence(board.work.parent, "x")
    names = list(gather(board, memory, quick=True))
    assert set(names) < {name for name, probe in probes().items() if probe.quick}
    again = SavedEvidence(board.work.parent, "x")
    assert "bench" not in again.found


def test_evidence_of_another_board_is_not_taken(place):
    board = board_at(place)
    memory = SavedEvidence(board.work.parent, "x")
    memory.found["board"] = Evidence(lines=FACTS)
    memory.save()
    assert SavedEvidence(board.work.parent, "x").found
    assert SavedEvidence(board.work.parent, "y").found == {}


def quick_options(place, **changes):
    settings = {"no_sudo": True, "quick": True, "json": False, "allow_changes": False}
    return Namespace(output=place / "p.zip", **{**settings, "anyway": False, **changes})


def test_a_machine_that_is_no_jetson_is_told_so_at_once(place):
    """All checks would end with the same answer; ``--anyway`` makes them."""
    machine = replace(board_at(place).machine, root=place / "pc", architecture="x86_64")
    board = replace(board_at(place), machine=machine)
    with pytest.raises(UserError, match="is not a Jetson") as raised:
        examine(quick_options(place), board, board.work.parent)
    assert "--anyway" in str(raised.value)
    assert not (place / "p.zip").exists()
    assert examine(quick_options(place, anyway=True), board, board.work.parent, 0.5) == 0
    assert (place / "p.zip").exists()


def test_root_that_is_not_wanted_is_not_called_missing(place):
    """Root with ``--no-sudo`` may do it, and leaves it out."""
    board = replace(board_at(place), sudo=None)
    memory = SavedEvidence(board.work.parent, "x")
    root_probes = {name: probe for name, probe in probes().items() if probe.root and probe.quick}
    assert root_probes
    for wants_none, words in ((True, "--no-sudo leaves out"), (False, "only root may")):
        memory.found.clear()
        board.without_root = wants_none
        list(gather(board, memory, quick=True, probes=root_probes))
        reasons = {evidence.missing for evidence in memory.found.values()}
        assert any(reason and reason.startswith(words) for reason in reasons)


@pytest.mark.parametrize("seconds", [None, 1.0])
def test_evidence_is_kept_for_the_next_run_only_if_the_time_was_over(place, seconds):
    board = play(place)
    options = quick_options(place)
    assert examine(options, board, board.work.parent, seconds) == 0
    assert board.work.parent.exists() == (seconds is not None)
