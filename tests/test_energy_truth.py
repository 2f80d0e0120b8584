"""The test for energy meters in tools/energy_truth: its worlds, and its arithmetic."""

import ctypes
import shutil
import time

import numpy as np
import pytest

from tegrascope.tools.energy_truth import page
from tegrascope.tools.energy_truth.files import (
    ManifestError,
    files_of,
    read_manifest,
    write_world,
)
from tegrascope.tools.energy_truth.meters import BY_NAME, METERS
from tegrascope.tools.energy_truth.readings import hidden, nvml_series, print_lines
from tegrascope.tools.energy_truth.results import read_results
from tegrascope.tools.energy_truth.running import (
    LiveWorld,
    MissingError,
    Workshop,
    run_worlds,
)
from tegrascope.tools.energy_truth.scoring import Answer, is_wrong, score
from tegrascope.tools.energy_truth.signals import CELL_SECONDS
from tegrascope.tools.energy_truth.trapezoid import joules_of, trapezoid
from tegrascope.tools.energy_truth.worlds import Spec, make_world, specs

SPECS = {spec.name: spec for spec in specs()}


def first(start: str) -> Spec:
    return next(spec for name, spec in SPECS.items() if name.startswith(start))


def test_there_are_a_hundred_worlds_and_all_of_them_are_frozen():
    assert len(SPECS) == 100
    assert {name.split("/")[0] for name in read_manifest()} == set(SPECS)


def test_a_world_has_its_number_in_its_name():
    for name, spec in SPECS.items():
        assert name.startswith(f"{spec.kind}-{spec.number:02d}-")


def test_a_tool_that_cannot_be_started_has_no_figure(tmp_path):
    world = make_world(first("nvml-13"))
    answers = LiveWorld(Workshop(tmp_path), world).play([BY_NAME["zeus"]])
    assert answers["zeus"].joules is None
    assert "No such file" in answers["zeus"].reason


def test_a_tool_that_cannot_be_installed_is_one_line(tmp_path):
    with pytest.raises(MissingError, match=r"nothing can be measured: .*no-python"):
        Workshop(tmp_path, python="/no-python").prepare([BY_NAME["zeus"]], {"nvml"})


@pytest.mark.parametrize("start", ["log-01", "log-22", "log-32", "sysfs-06", "nvml-13"])
def test_world_that_is_made_now_is_the_one_that_was_frozen(start, tmp_path):
    write_world(make_world(first(start)), tmp_path, read_manifest())


def test_file_that_differs_from_the_manifest_is_refused(tmp_path):
    world = make_world(first("log-01"))
    sums = read_manifest() | {f"{world.spec.name}/runs.csv": "0" * 64}
    with pytest.raises(ManifestError, match=r"runs\.csv"):
        write_world(world, tmp_path, sums)


def test_energy_of_a_world_is_the_sum_of_its_cells():
    world = make_world(first("sysfs-03"))
    cells = slice(round(6 / CELL_SECONDS), round(7 / CELL_SECONDS))
    expected = int(world.counted[cells].sum()) * CELL_SECONDS / 1e6
    assert world.joules(6.0, 7.0) == pytest.approx(expected, rel=1e-12)
    whole = world.joules(world.begin, world.end)
    parts = world.joules(world.begin, 9.1) + world.joules(9.1, world.end)
    assert parts == pytest.approx(whole, rel=1e-12)


def test_counter_of_a_gpu_grows_by_the_energy_and_a_faulty_one_does_not():
    def counted(start: str) -> tuple[float, float]:
        world = make_world(first(start))
        series = nvml_series(world)
        energy = np.interp([world.begin, world.end], series.times, series.values["energy_mj"])
        return float(energy[1] - energy[0]) / 1000, world.truth_joules

    joules, truth = counted("nvml-13")
    assert joules == pytest.approx(truth, rel=0.01)
    for start in ("nvml-18", "nvml-19", "nvml-20"):
        joules, truth = counted(start)
        assert abs(joules / truth - 1) > 0.05


def test_lines_of_a_world_are_in_step_with_its_job_where_it_is_hidden():
    world = make_world(first("log-32"))
    assert "in step with 1.0235 s" in hidden(world)
    assert hidden(make_world(first("log-33"))) == ""
    assert len(print_lines(world).printed) > 100


@pytest.mark.parametrize("start", ["log-01", "log-05", "log-33", "log-34", "log-45"])
def test_trapezoid_finds_the_energy_of_worlds_without_trouble(start, tmp_path):
    world = make_world(first(start))
    folder = write_world(world, tmp_path, read_manifest())
    assert joules_of(folder) == pytest.approx(world.truth_joules, rel=0.005)


def test_files_of_a_world_are_the_same_each_time():
    world = make_world(first("nvml-02"))
    assert dict(files_of(world)) == dict(files_of(world))


def test_score_counts_what_is_right_wrong_and_withheld():
    answers = [
        Answer(100.0, 101.5, 99.0, 104.0),
        Answer(100.0, 98.5, 97.0, 99.0),
        Answer(100.0, reason="aliased"),
        Answer(100.0, 130.0, 90.0, 170.0),
    ]
    found = score(answers)
    assert (found.worlds, found.published, found.withheld) == (4, 3, 0.25)
    assert found.coverage == pytest.approx(2 / 3)
    assert found.within == pytest.approx((0.0, 2 / 3, 2 / 3))
    assert found.bias == pytest.approx(0.015)
    assert found.worst == pytest.approx(0.3)
    assert [is_wrong(answer) for answer in answers] == [False, True, False, False]


def test_score_of_a_tool_without_intervals_has_no_coverage():
    found = score([Answer(200.0, 201.0), Answer(200.0, 188.0)])
    assert found.coverage is None
    assert found.half_width is None
    assert found.within == (0.5, 0.5, 0.5)
    assert is_wrong(Answer(200.0, 188.0))
    assert not is_wrong(Answer(200.0, 191.0))
    assert score([]).withheld is None


def test_trapezoid_clips_to_the_window():
    assert trapezoid([0.0, 1.0, 2.0], [10.0, 20.0, 20.0], 0.5, 2.0) == pytest.approx(28.75)


def test_ours_and_the_trapezoid_find_the_energy_of_steady_logs(tmp_path):
    names = ("log-01", "log-05", "log-17", "log-33", "log-47")
    chosen = [first(name) for name in names]
    meters = [BY_NAME["tegrascope"], BY_NAME["trapezoid"]]
    found = run_worlds(Workshop(tmp_path), chosen, meters, read_manifest())
    for tool in ("tegrascope", "trapezoid"):
        assert list(found[tool]) == [spec.name for spec in chosen]
        assert score(found[tool].values()).within[0] == 1.0
    assert all(answer.has_interval for answer in found["tegrascope"].values())


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc")
@pytest.mark.parametrize("is_released", [True, False])
def test_library_for_nvml_waits_for_the_work_and_then_plays_it(tmp_path, monkeypatch, is_released):
    world = make_world(first("nvml-13"))
    folder = write_world(world, tmp_path, read_manifest())
    workshop = Workshop(tmp_path)
    workshop.build_stand_ins()
    origin_ns = time.monotonic_ns() - round((world.begin + 5) * 1e9)
    origin, release = tmp_path / "origin", tmp_path / "release"
    origin.write_text(str(origin_ns))
    if is_released:
        release.write_text(str(origin_ns + round(world.begin * 1e9)))
    variables = {
        "ENERGY_TRUTH_SERIES": str(folder / "nvml.txt"),
        "ENERGY_TRUTH_ORIGIN": str(origin),
        "ENERGY_TRUTH_RELEASE": str(release),
        "ENERGY_TRUTH_BEGIN": repr(world.begin),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    library = ctypes.CDLL(str(workshop.library / "libnvidia-ml.so.1"))
    energy = ctypes.c_ulonglong()
    assert library.nvmlInit_v2() == 0
    edges = [(time.monotonic_ns() - origin_ns) / 1e9]
    assert library.nvmlDeviceGetTotalEnergyConsumption(None, ctypes.byref(energy)) == 0
    edges.append((time.monotonic_ns() - origin_ns) / 1e9)

    def joules_until(seconds):
        if is_released:
            return world.joules(0.0, seconds)
        last_second = world.joules(world.begin - 1, world.begin)
        return world.joules(0.0, world.begin) + last_second * (seconds - world.begin)

    # The counter is as old as one update, in which the work draws about 50 J.
    low, high = map(joules_until, edges)
    slack = 60 if is_released else 12
    assert low - slack <= energy.value / 1000 - 4000 <= high + slack


def test_each_tool_was_run_on_each_world_that_it_can_read():
    results = read_results()
    assert set(results) == {meter.name for meter in METERS}
    for meter in METERS:
        kinds = set(meter.drivers)
        if meter.is_ours:
            kinds = {"log", "sysfs", "nvml"}
        if meter.name == "trapezoid":
            kinds |= {"log"}
        assert set(results[meter.name]) == {s.name for s in SPECS.values() if s.kind in kinds}


def test_page_is_what_the_results_give():
    assert page.PAGE.read_text(encoding="utf-8") == page.render(read_results())
