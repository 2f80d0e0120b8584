"""Played boards prove what is right, and a planted lie refutes its belief alone."""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pytest
import yaml

from tegrascope.workbench.doctor.software import DLA_TRACE
from tegrascope.workbench.prove.belief import Evidence, beliefs
from tegrascope.workbench.prove.report import beliefs_page, boards_page, verdict_line
from tegrascope.workbench.prove.runner import CHECKS, SavedEvidence, gather, verdicts
from tegrascope.workbench.prove.scrub import clean, leaks
from tegrascope.workbench.results.records import BenchFlag
from tools.board_page import PAGE

from .boards import CAPTURES, kinds, play, serve, serve_modes
from .lies import LIES, lines

PLAYED = ("agx-orin", "orin-nx", "orin-nano", "xavier", "thor")
# What no board of any kind proves in twenty minutes: a part of it takes longer, or a person.
PARTLY = {
    "rail_reading_time",
    "trace_ids",
    "no_event_lost",
    "inspect_predicts",
    "page_memory",
    "parent_small",
}
ONLY_ON = {
    "rail_steps": {"agx-orin"},
    "rails_beside_lines": set(PLAYED) - {"xavier"},
    "tensorrt_8_path": {"xavier"},
    "old_cuda_python": set(PLAYED) - {"xavier"},
    "ina238_vin": {"thor"},
    "over_current_readable": {"agx-orin", "orin-nx", "orin-nano"},
    "dla_refused": {"orin-nano", "thor"},
    "active_dla_prints_load": {"agx-orin", "orin-nx"},
    "trace_events": {"agx-orin", "orin-nx"},
    "nvml_of_thor": {"thor"},
    "nvml_in_sandbox": {"thor"},
    "thor_prints_no_gpu_load": {"thor"},
    "jetpack5_python": {"xavier"},
    "reboot_mode_refused": {"agx-orin"},
    "nvml_of_orin_gives_nothing": {"agx-orin", "orin-nx", "orin-nano"},
    "gpu_switches": set(PLAYED) - {"thor"},
    "nvmap_lists_all": set(PLAYED) - {"thor"},
    "rail_labels": set(PLAYED) - {"thor"},
    "sensor_defaults": set(PLAYED) - {"thor"},
}
# These need a DLA at work, or its driver.
OF_DLA = {
    *("forbid_builds", "inspector_layer_types", "powered_time_grows", "standalone_built"),
    *("log_lists_layers", "inspector_says_dla", "cudla_runs", "dla_used_flag", "resnet_on_dla"),
    *("trace_lines", "trace_process", "instance_removed", "utilization_rate_form"),
    *("workers_together", "last_error_cheap", "two_streams_fit", "no_gpu_work"),
    *("doctor_root", "dla_engine_runs", "fallback_distinguished", "qdq_on_dla", "subgraph_nodes"),
    *("inspect_parts", "lock_in_on_dla", "powered_half_second", "reader_unit", "stamps_of_work"),
    *("cudla_compute_time", "busy_within_powered", "foreign_work", "window_on_dla"),
    *("firmware_in_key", "memory_on_dla"),
    *("plan_on_both_cores", "profiler_rows_grouped", "standalone_int8"),
}
# A run that fails for any reason leaves these undecided, so nothing refutes them.
ONLY_PROVED = {"two_streams_fit", "trtexec_options", "jetpack5_python"}


@pytest.fixture(scope="module")
def proven() -> Iterator[dict[str, dict[str, Evidence]]]:
    """The evidence of each board, gathered once."""
    found: dict[str, dict[str, Evidence]] = {}
    with TemporaryDirectory(prefix="prove") as folder:
        for name in PLAYED:
            board = play(Path(folder) / name, name)
            memory = SavedEvidence(board.work.parent, name)
            said = kinds()[name].say()[:3]
            said = [line.replace("NVDLA0 off", "NVDLA0 45%@1600") for line in said]
            server, modes = serve(board, said), serve_modes(board, reboots=name == "agx-orin")
            with server, modes, serve(board, ["# tegrascope-dla hello cores=0,1"], DLA_TRACE.path):
                for _ in gather(board, memory, changes=True):
                    pass
            # Distances of played lines are those of this machine, which may be busy.
            for step in ("tegrastats", "rails_beside"):
                printed = memory.found[step]
                assert printed.at_seconds == tuple(sorted(printed.at_seconds))
                even = tuple(0.02 * at for at in range(len(printed.at_seconds)))
                memory.found[step] = printed.model_copy(update={"at_seconds": even})
            found[name] = memory.found
    yield found


def states(found: dict[str, Evidence], state: str) -> set[str]:
    return {name for name, verdict in verdicts(found).items() if verdict.state == state}


@pytest.mark.parametrize("board", PLAYED)
def test_right_board_proves_all_that_it_can_decide(proven, board):
    expected = {
        name
        for name in CHECKS
        if name not in PARTLY
        and board in ONLY_ON.get(name, set(PLAYED))
        and not (name in OF_DLA and board in ("orin-nano", "thor"))
    }
    assert states(proven[board], "proved") == expected
    assert states(proven[board], "refuted") == set()


def test_each_check_has_a_lie():
    assert LIES.keys() == CHECKS.keys() - ONLY_PROVED


@pytest.mark.parametrize("name", LIES)
def test_lie_refutes_its_belief_alone(proven, name):
    lie = LIES[name]
    found = dict(proven[lie.board])
    found[lie.probe] = lie.change(found[lie.probe])
    assert states(found, "refuted") == {name}
    line = verdict_line(beliefs()[name], verdicts(found)[name])
    assert f"wrong in tegrascope: {beliefs()[name].wrong}" in line


def test_each_check_is_of_a_belief_and_names_what_would_be_wrong():
    assert CHECKS.keys() <= beliefs().keys()
    assert all(beliefs()[name].wrong for name in CHECKS)


def test_belief_that_cannot_be_decided_has_a_remedy(proven):
    for found in proven.values():
        for name, verdict in verdicts(found).items():
            assert verdict.because, name
            assert verdict.state != "not here" or verdict.remedy, name


@pytest.mark.parametrize("status", [None, 0])
@pytest.mark.parametrize("lines", [(), ("seconds: ?", "x: 1")])
def test_evidence_that_cannot_be_read_proves_nothing(lines, status):
    """Apart from a build that ended well, whose status is the evidence."""
    probes = {probe for needs, _ in CHECKS.values() for probe in needs}
    found = dict.fromkeys(probes, Evidence(lines=lines, status=status))
    assert states(found, "proved") <= ({"forbid_builds"} if status == 0 else set())


def test_bench_that_was_stopped_before_its_first_round_says_so():
    stopped = Evidence(lines=("mobilenet: builds the engine",), status=None, seconds=120)
    verdict = verdicts({"calibration": stopped})["calibrates"]
    assert verdict.state == "undecided"
    assert verdict.because == "gpu did not run: stopped after 120 s"


@pytest.mark.parametrize("name", ["cache_same_engine", "cache_other_release"])
def test_builds_of_equal_scales_may_choose_other_layers(proven, name):
    found = dict(proven["agx-orin"])
    bench = found["calibration"]
    other = lines("layer_types.Half: 50", "layer_types.Int8: 23")(bench)
    other = lines(r"(relative_error): 0\.01", r"\1: 0.012")(other)
    assert other.lines != bench.lines
    kept = {"calibration": bench, "from_cache": other, "other_cache": other}
    assert verdicts(kept)[name].state == "proved"


def test_page_is_what_make_docs_writes():
    text = PAGE.read_text(encoding="utf-8")
    assert beliefs_page(text) == text


def test_boards_page_is_that_of_no_file_yet():
    assert (PAGE.parent / "boards.md").read_text(encoding="utf-8") == boards_page([])


def test_issue_form_names_the_commands():
    form = yaml.safe_load((PAGE.parents[1] / ".github/ISSUE_TEMPLATE/board.yml").read_text())
    assert [one["id"] for one in form["body"][1:]] == ["board", "file", "notes", "read"]
    assert "tegrascope prove --show board.zip" in form["body"][0]["attributes"]["value"]


def test_words_of_our_own_outputs_are_known(proven):
    """A path that is hidden is lost to its check; addresses of devices may be hidden."""
    for found in proven.values():
        paths = [line.partition(": ")[0] for one in found.values() for line in one.lines]
        assert [path for path in paths if "xx" in path.replace("###x####", "")] == []
    for flag in _texts(BenchFlag):
        assert clean(flag) == flag


def _texts(kind: object) -> Iterator[str]:
    """Yield the texts of literals, also of a union of them."""
    for one in get_args(kind):
        if isinstance(one, str):
            yield one
        else:
            yield from _texts(one)


@pytest.mark.parametrize(
    "capture", sorted(path.stem for path in CAPTURES.glob("*.txt") if "various" not in path.stem)
)
def test_recorded_line_has_only_known_words(capture):
    """What tegrastats printed anywhere is sent as it is; one capture has an invented token."""
    for line in (CAPTURES / f"{capture}.txt").read_text(encoding="utf-8").splitlines():
        own = re.sub(r"^[\d.]+::", "", line).replace(" FUTURE_TOKEN value", "")
        assert clean(own) == own
        assert leaks(own, []) == []


def test_gpu_with_memory_of_its_own_does_not_decide_managed_memory(proven):
    found = dict(proven["agx-orin"])
    refused = clean("this GPU has memory of its own, where managed memory is slower")
    change = lines(r"(.*points\.2\.result)\.outputs\.verdict: good", rf"\1.reason: {refused}")
    found["memory"] = change(found["memory"])
    assert verdicts(found)["memory_on_gpu"].state == "not here"
    found["memory"] = lines(r"(points\.0.*verdict): good", r"\1: wrong")(found["memory"])
    found["memory"] = lines(r"(points\.2\.result\.reason): .*", r"\1: no memory")(found["memory"])
    assert verdicts(found)["memory_on_gpu"].state == "undecided"
