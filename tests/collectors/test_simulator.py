"""The simulated board prints what a real one prints, and knows the truth behind it."""

# ruff: noqa: E501 - the lines of real boards are as long as they are

import itertools
import re
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.collectors.simulator.board import (
    JumpClock,
    SimulatedBoard,
    SimulatedKernel,
    SimulatorSource,
)
from tegrascope.collectors.simulator.physics import (
    LoadBoard,
    board_model,
    board_models,
)
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.records import Sample
from tegrascope.parsers.signals import by_name
from tegrascope.parsers.tegrastats import parse_line, render_line
from tests.fakes.processes import Stopwatch

SECOND = 1_000_000_000

# One line of each board as root and not, from public logs of R36, boards (nearly) idle; verbatim
# but for the recorder's stamp in front of some. The Nano as root has its swap disabled.
REAL_LINES = {
    (
        "agx-orin-64gb",
        True,
    ): "10-26-2025 05:10:54 RAM 6879/62841MB (lfb 3x4MB) SWAP 0/31421MB (cached 0MB) CPU [5%@729,1%@729,0%@729,9%@729,1%@729,3%@729,5%@729,0%@729,3%@729,1%@729,1%@729,7%@729] EMC_FREQ 0%@2133 GR3D_FREQ 0%@[305,305] NVENC off NVDEC off NVJPG off NVJPG1 off VIC off OFA off NVDLA0 off NVDLA1 off PVA0_FREQ off APE 174 cpu@47.687C tboard@36.75C soc2@44.312C tdiode@37.5C soc0@45.718C gpu@43.218C tj@47.687C soc1@45.125C VDD_GPU_SOC 2801mW/2801mW VDD_CPU_CV 400mW/400mW VIN_SYS_5V0 4536mW/4536mW VDDQ_VDD2_1V8AO 604mW/604mW",
    (
        "agx-orin-64gb",
        False,
    ): "06-25-2025 10:34:26 RAM 25620/62841MB (lfb 4x4MB) SWAP 0/31421MB (cached 0MB) CPU [0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201,0%@2201] GR3D_FREQ 0% cpu@45C tboard@34.375C soc2@40.968C tdiode@34.75C soc0@42.093C gpu@39.656C tj@45C soc1@41.625C VDD_GPU_SOC 5193mW/5193mW VDD_CPU_CV 1997mW/1997mW VIN_SYS_5V0 4421mW/4421mW VDDQ_VDD2_1V8AO 502mW/502mW",
    (
        "orin-nx-16gb",
        True,
    ): "06-25-2025 09:43:10 RAM 3408/15657MB (lfb 176x4MB) SWAP 0/7828MB (cached 0MB) CPU [33%@806,0%@806,0%@806,0%@806,0%@729,0%@729,0%@729,0%@729] EMC_FREQ 0%@2133 GR3D_FREQ 0%@[305] NVENC off NVDEC off NVJPG off NVJPG1 off VIC off OFA off NVDLA0 off NVDLA1 off PVA0_FREQ off APE 174 cv0@52.781C cpu@55.187C soc2@52.062C soc0@54.062C cv1@52.156C gpu@51.343C tj@55.875C soc1@55.875C cv2@51.125C VDD_IN 5469mW/5469mW VDD_CPU_GPU_CV 970mW/970mW VDD_SOC 1579mW/1579mW",
    (
        "orin-nx-16gb",
        False,
    ): "06-25-2025 09:43:11 RAM 3412/15657MB (lfb 176x4MB) SWAP 0/7828MB (cached 0MB) CPU [0%@1984,0%@1984,0%@1984,0%@1984,0%@1036,0%@1036,0%@1036,0%@1036] GR3D_FREQ 0% cv0@53.062C cpu@55.062C soc2@52.25C soc0@54.312C cv1@51.937C gpu@51.75C tj@55.562C soc1@55.562C cv2@51.062C VDD_IN 5793mW/5793mW VDD_CPU_GPU_CV 1213mW/1213mW VDD_SOC 1579mW/1579mW",
    (
        "orin-nano-8gb",
        True,
    ): "04-19-2026 01:31:10 RAM 519/7607MB (lfb 61x4MB) CPU [0%@1728,0%@1728,0%@1728,9%@1728,0%@1728,0%@1728] EMC_FREQ 0%@3199 GR3D_FREQ 0%@[1018] NVDEC off NVJPG off NVJPG1 off VIC off OFA off APE 200 cpu@48.906C soc2@47.656C soc0@48.093C gpu@49.593C tj@49.593C soc1@47.312C VDD_IN 5971mW/5971mW VDD_CPU_GPU_CV 1669mW/1669mW VDD_SOC 2308mW/2308mW",
    (
        "orin-nano-8gb",
        False,
    ): "05-13-2026 12:53:25 RAM 1773/7620MB (lfb 41x4MB) SWAP 0/3810MB (cached 0MB) CPU [0%@1344,100%@1344,0%@1344,0%@1344,0%@729,0%@729] GR3D_FREQ 0% cpu@41.812C soc2@40.5C soc0@41.656C gpu@42.125C tj@42.125C soc1@41.937C VDD_IN 5128mW/5152mW VDD_CPU_GPU_CV 1000mW/1041mW VDD_SOC 1402mW/1402mW",
}


def samples(board="agx-orin-64gb", *, count=10, interval=1.0, **options) -> list[Sample]:
    return [parse_line(line) for line in printed(board, count=count, interval=interval, **options)]


def printed(board="agx-orin-64gb", *, count=10, interval=1.0, **options) -> list[str]:
    source = SimulatorSource(board, interval_seconds=interval, clock=JumpClock(), **options)
    return [line.value for line in itertools.islice(source.lines(), count)]


def loaded(changes: "list[tuple[float, str, float]]") -> LoadBoard:
    """Return loads that begin so many seconds after the start of a clock that jumps."""
    load = LoadBoard()
    for at_seconds, lane, ratio in changes:
        load.set(lane, ratio, round(at_seconds * 1e9))
    return load


def layout(line: str) -> str:
    """Put an N for each number, so that what is left is the form."""
    return re.sub(r"(?<![A-WYZa-wyz_0-9.])\d+(\.\d+)?", "N", line)


def steady(board: str, **loads: float) -> Sample:
    """Read a board after a minute of constant load."""
    schedule = [(0, lane, ratio) for lane, ratio in loads.items()]
    return samples(board, count=60, load=loaded(schedule))[-1]


@pytest.mark.parametrize(("board", "privileged"), REAL_LINES)
def test_an_idle_line_has_the_form_of_a_real_one(board, privileged):
    """Same tokens, same order, same punctuation as the real board's line."""
    real = REAL_LINES[board, privileged]
    swap = "" if "SWAP" in real else r" SWAP \S+ \(cached \w+\)"
    for line in printed(board, privileged=privileged):
        assert layout(re.sub(swap, "", line)) == layout(real)
        assert render_line(parse_line(line)) == line


def test_the_form_keeps_names_and_loses_numbers():
    """Otherwise the test before would prove nothing."""
    assert layout(
        "RAM 1/2MB (lfb 3x4MB) NVDLA0 off cv1@40.5C soc0@40C VDDQ_VDD2_1V8AO 1mW/2mW"
    ) == ("RAM N/NMB (lfb NxNMB) NVDLA0 off cv1@NC soc0@NC VDDQ_VDD2_1V8AO NmW/NmW")


@pytest.mark.parametrize("board", board_models())
def test_idle_figures_are_near_those_of_the_real_board(board):
    """Power within 0.6 W and zones within 3 °C of a log of the same idle board."""
    real = parse_line(REAL_LINES[board, board != "orin-nano-8gb"])
    sample = samples(board)[-1]
    for name, rail in real.rails.items():
        assert sample.rails[name].average_watts == pytest.approx(rail.instant_watts, abs=0.6)
    for zone, celsius in real.temperatures_celsius.items():
        assert sample.temperatures_celsius[zone] == pytest.approx(celsius, abs=3)


@pytest.mark.parametrize("board", board_models())
def test_every_lane_is_felt_where_it_should_be(board):
    """The GPU heats its rail and reads 99 at most; CPU load shows in the cores."""
    idle, gpu, cpu = steady(board), steady(board, gpu=1.0), steady(board, cpu=1.0)
    main = "VDD_GPU_SOC" if board.startswith("agx") else "VDD_CPU_GPU_CV"
    assert gpu.rails[main].instant_watts > idle.rails[main].instant_watts + 4
    assert gpu.gpu.utilization_ratio == 0.99
    assert gpu.gpu.frequency_hertz[0] > 2 * idle.gpu.frequency_hertz[0]
    assert gpu.emc.frequency_hertz == 3_199_000_000 > idle.emc.frequency_hertz
    assert 0.2 < gpu.emc.utilization_ratio < 0.6
    assert gpu.temperatures_celsius["gpu"] > idle.temperatures_celsius["gpu"] + 5
    assert gpu.temperatures_celsius["tj"] == max(gpu.temperatures_celsius.values()) < 99
    assert gpu.ram.used_bytes > idle.ram.used_bytes + 500 * 1024**2
    assert min(core.utilization_ratio for core in cpu.cpu) > 0.9
    assert cpu.cpu[0].frequency_hertz > 2 * idle.cpu[0].frequency_hertz
    assert cpu.gpu.utilization_ratio == 0


def test_a_dla_run_is_seen_where_a_dla_run_is_seen():
    """On an AGX Orin in the CV rail, the memory controller, the engine and its zones."""
    idle, dla, gpu = (steady("agx-orin-64gb", **load) for load in ({}, {"dla1": 1.0}, {"gpu": 1.0}))
    assert 3 < dla.rails["VDD_CPU_CV"].instant_watts - idle.rails["VDD_CPU_CV"].instant_watts < 5.5
    assert dla.rails["VDD_GPU_SOC"].instant_watts < gpu.rails["VDD_GPU_SOC"].instant_watts - 10
    assert dla.gpu.utilization_ratio == 0
    assert dla.emc.utilization_ratio > 0.1
    assert [core.state for core in dla.dla] == ["off", "on"]
    assert (dla.dla[1].utilization_ratio, dla.dla[1].frequency_hertz) == (1.0, 1_600_000_000)
    assert {"cv0", "cv1", "cv2"} <= set(dla.temperatures_celsius)
    assert "cv0" not in idle.temperatures_celsius


def test_the_dla_stays_on_for_half_a_second():
    """As the driver keeps a core powered after its last task; then it is off again."""
    schedule = [(1.0, "dla0", 1.0), (2.0, "dla0", 0.0)]
    options = {"interval": 0.1, "read_seconds": (0, 0), "load": loaded(schedule)}
    states = dict(enumerate(printed(count=40, **options), 1))
    assert "NVDLA0 off" in states[9]
    assert "NVDLA0 100%@1600 NVDLA1 off" in states[15]
    assert "NVDLA0 0%@1600" in states[22]
    assert "NVDLA0 0%@1600" in states[24]
    assert "NVDLA0 off" in states[26]


def test_an_ordinary_user_sees_no_engines():
    """Without root there is no EMC, no clock of the GPU and no DLA, whatever works."""
    schedule = [(0, "dla0", 1.0), (0, "gpu", 0.5)]
    line = printed(count=5, privileged=False, load=loaded(schedule))[-1]
    assert "NVDLA" not in line
    assert "EMC" not in line
    assert "GR3D_FREQ 50% cv0@" in line


def test_utilisation_is_that_of_the_interval():
    """A run within an interval counts with its share of it, to the percent."""
    schedule = [(2.25, "gpu", 1.0), (2.75, "gpu", 0.0)]
    loads = [
        sample.gpu.utilization_ratio
        for sample in samples(count=4, read_seconds=(0, 0), load=loaded(schedule))
    ]
    assert loads == [0, 0, 0.5, 0]


@pytest.mark.parametrize("board", board_models())
def test_rails_read_in_the_steps_of_their_sensor(board):
    """Each is a current in whole steps times a voltage in steps of 8 mV, as of the rail rule."""
    model = board_models()[board]
    rule = find_rail_rule([rail.name for rail in model.rails])
    readings = samples(board, count=300, interval=0.1)
    for rail in model.rails:
        step_watts = rail.volts * rail.step_milliamperes / 1000
        assert step_watts == pytest.approx(rule.step_watts(rail.name), rel=0.02)
        possible = {
            8 * volts * rail.step_milliamperes * amperes // 1000
            for volts in range(round(rail.volts * 125) - 6, round(rail.volts * 125) + 7)
            for amperes in range(300)
        }
        read = {round(sample.rails[rail.name].instant_watts * 1000) for sample in readings}
        assert 2 < len(read) < 60
        assert read <= possible


@pytest.mark.parametrize(("board", "round_up"), [("agx-orin-64gb", 0), ("orin-nano-8gb", 1)])
def test_the_second_number_is_the_mean_since_the_start(board, round_up):
    """Of what was printed, truncated or rounded as in the logs of the same board."""
    sums = dict.fromkeys((rail.name for rail in board_models()[board].rails), 0)
    for count, sample in enumerate(samples(board, count=50), 1):
        for name, rail in sample.rails.items():
            sums[name] += round(rail.instant_watts * 1000)
            mean = (2 * sums[name] + round_up * count) // (2 * count)
            assert round(rail.average_watts * 1000) == mean


@pytest.mark.parametrize("board", board_models())
def test_volts_and_amperes_are_those_of_the_printed_power(board):
    """Their product is the power of the line; they are read again after ten seconds."""
    clock = JumpClock()
    source = SimulatorSource(board, clock=clock, interval_seconds=1.0)
    lines, kernel = source.lines(), SimulatedKernel(source.board)
    told = []
    for _ in range(25):
        rails = parse_line(next(lines).value).rails
        told.append(by_name(kernel.columns()))
        if len(told) % 10 == 1:
            for name, rail in rails.items():
                volts, amperes = (told[-1][f"rails.{name}.{unit}"] for unit in ("volts", "amperes"))
                assert volts * amperes == pytest.approx(rail.instant_watts, abs=0.001)
    first = next(iter(source.board.model.rails)).name
    volts = [columns[f"rails.{first}.volts"] for columns in told]
    assert len(set(volts[:10])) == 1
    assert told[-1][f"rails.{first}.lowest_volts"] == min(volts)
    limits = {name for name in told[-1] if ".limit_" in name}
    assert bool(limits) == (board == "orin-nano-8gb")


def test_the_same_seed_gives_the_same_bytes():
    """And another seed gives others."""
    schedule = [(1.5, "gpu", 1.0), (3.0, "dla0", 0.5)]
    one, same, other = (printed(seed=seed, load=loaded(schedule)) for seed in (7, 7, 8))
    assert one == same != other


def test_lines_come_at_the_pace_of_tegrastats():
    """The period is the interval and the time of reading, and the stamp that of printing."""
    source = SimulatorSource(interval_seconds=1.0, clock=JumpClock(wall_ns=5 * 10**17))
    stamps = [line.monotonic_ns for line in itertools.islice(source.lines(), 200)]
    gaps = [(b - a) / 1e9 for a, b in itertools.pairwise(stamps)]
    assert 1.006 <= min(gaps) < max(gaps) <= 1.022
    assert (source.name, source.is_live, source.restarts) == ("simulator", False, 0)
    assert source.interval_seconds == 1.0


def test_stop_ends_the_lines():
    """With the real clock, long before the next line is due."""
    source = SimulatorSource(interval_seconds=60)
    stopper = threading.Timer(0.02, source.stop)
    stopper.start()
    watch = Stopwatch()
    assert list(source.lines()) == []
    assert watch.seconds < 5
    stopper.join()


def test_an_unknown_board_is_refused():
    """With the names of those that are known."""
    with pytest.raises(UserError, match="agx-orin-64gb, orin-nx-16gb, orin-nano-8gb"):
        SimulatorSource("tx9")


# --- the truth ----------------------------------------------------------------------------------


def agx(load: LoadBoard, seed: int = 0, **settings: int) -> SimulatedBoard:
    return SimulatedBoard(board_model("agx-orin-64gb"), load, begin_ns=0, seed=seed, **settings)


changes = st.lists(
    st.tuples(
        st.integers(0, 5 * SECOND),
        st.sampled_from(["gpu", "dla0", "dla1", "cpu"]),
        st.floats(0, 1, width=16),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=30)
@given(changes, st.lists(st.integers(0, 5 * SECOND), max_size=6))
def test_looking_changes_nothing(changes, looks):
    """However often the board is looked at, its energy and its heat are the same."""
    boards = []
    for times in ([], sorted(looks)):
        load = LoadBoard()
        for at_ns, lane, ratio in changes:
            load.set(lane, ratio, at_ns)
        board = agx(load)
        for at_ns in times:
            board.advance(at_ns)
        board.advance(5 * SECOND)
        boards.append(board)
    calm, watched = (board.true_energy(0, 5 * SECOND) for board in boards)
    assert watched.rail_joules == pytest.approx(calm.rail_joules, rel=1e-9)
    calm_sample, watched_sample = (board.read(5 * SECOND, 0) for board in boards)
    assert watched_sample.temperatures_celsius == pytest.approx(
        calm_sample.temperatures_celsius, abs=0.04
    )


@settings(deadline=None, max_examples=30)
@given(changes, st.lists(st.integers(0, 5 * SECOND), min_size=1, max_size=4))
def test_true_energy_adds_up(changes, cuts):
    """Cutting a window neither makes nor loses energy, and the total is that of the rail rule."""
    load = LoadBoard()
    for at_ns, lane, ratio in changes:
        load.set(lane, ratio, at_ns)
    board = agx(load)
    whole = board.true_energy(0, 5 * SECOND)
    edges = [0, *sorted(cuts), 5 * SECOND]
    parts = [board.true_energy(begin, end) for begin, end in itertools.pairwise(edges)]
    assert sum(part.module_joules for part in parts) == pytest.approx(whole.module_joules)
    rails = whole.rail_joules
    assert whole.module_joules == pytest.approx(
        rails["VDD_GPU_SOC"] + rails["VDD_CPU_CV"] + rails["VIN_SYS_5V0"]
    )


def test_true_energy_of_a_load_is_exact():
    """Two boards with one seed differ by just the load: its watts times its seconds, and no more."""
    worked = LoadBoard()
    worked.set("gpu", 0.5, 2 * SECOND + 1)
    worked.set("gpu", 0.0, 2 * SECOND + 50_000_001)
    busy, idle = agx(worked), agx(LoadBoard())
    begin, end = 2 * SECOND, 2 * SECOND + 60_000_000
    more = busy.true_energy(begin, end).rail_joules["VDD_GPU_SOC"]
    less = idle.true_energy(begin, end).rail_joules["VDD_GPU_SOC"]
    assert more - less == pytest.approx(19.0 * 0.5 * 0.05, rel=1e-6)


def test_readings_agree_with_the_truth():
    """Over five minutes the mean of the samples is the true power within two percent."""
    schedule = [(0, "gpu", 0.6), (0, "dla0", 0.8)]
    source = SimulatorSource(interval_seconds=0.103, clock=JumpClock(), load=loaded(schedule))
    lines = list(itertools.islice(source.lines(), 3000))
    begin_ns, end_ns = lines[0].monotonic_ns, lines[-1].monotonic_ns
    truth = source.board.true_energy(begin_ns, end_ns)
    last = parse_line(lines[-1].value)
    for name, joules in truth.rail_joules.items():
        watts = joules / ((end_ns - begin_ns) / 1e9)
        assert last.rails[name].average_watts == pytest.approx(watts, rel=0.02)


def test_the_truth_is_remembered_for_a_while_only():
    """The memory is bounded, and energy before it is an error, not a guess."""
    board = agx(LoadBoard(), most_pieces=655)
    board.advance(70 * SECOND)
    assert board.true_energy(60 * SECOND, 70 * SECOND).module_joules > 0
    with pytest.raises(LookupError):
        board.true_energy(0, 1)


def test_heat_takes_its_time_and_leaks():
    """A loaded board warms over minutes, and its leakage with it."""
    load = LoadBoard()
    load.set("gpu", 1.0, 0)
    board = agx(load)
    early, late = board.true_energy(0, SECOND), board.true_energy(800 * SECOND, 801 * SECOND)
    assert late.module_joules > early.module_joules + 0.5
    warm = [board.read(at * SECOND, 0).temperatures_celsius["tboard"] for at in (802, 900)]
    assert warm[1] == pytest.approx(warm[0], abs=1)
    assert warm[0] > 45


# --- the loads ----------------------------------------------------------------------------------


def test_loads_are_cut_where_they_change():
    """Segments are constant, gapless and in order; a lane not named yet is not in them."""
    load = LoadBoard()
    load.set("gpu", 1.0, 10)
    load.set("dla0", 0.5, 20)
    load.set("gpu", 0.0, 30)
    assert load.between(0, 40) == [
        (0, 10, {"gpu": 0.0, "dla0": 0.0}),
        (10, 20, {"gpu": 1.0, "dla0": 0.0}),
        (20, 30, {"gpu": 1.0, "dla0": 0.5}),
        (30, 40, {"gpu": 0.0, "dla0": 0.5}),
    ]
    assert load.between(40, 40) == []
    assert load.busy_ratio("gpu", 0, 40) == 0.5
    assert load.busy_ratio("dla0", 10, 30) == 0.25
    assert load.busy_ratio("dla1", 0, 40) == load.busy_ratio("gpu", 5, 5) == 0


def test_a_late_change_counts_from_where_the_past_is_settled():
    """What a board has lived through does not change any more."""
    load = LoadBoard()
    load.take(0, 100)
    load.set("gpu", 1.0, 50)
    assert load.busy_ratio("gpu", 0, 100) == 0
    assert load.busy_ratio("gpu", 100, 200) == 1


def test_changes_may_be_told_out_of_order():
    """Each bears its own time; of two with the same time the later told one counts."""
    load = LoadBoard()
    for at_ns, ratio in [(30, 0.0), (10, 1.0), (10, 0.5)]:
        load.set("gpu", ratio, at_ns)
    assert [one.ratios["gpu"] for one in load.between(0, 40)] == [0, 0.5, 0]


def test_a_load_is_a_ratio():
    """Anything else is a mistake of the program."""
    for ratio in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="not within"):
            LoadBoard().set("gpu", ratio)
    load = LoadBoard()
    load.set("gpu", 1.0)
    assert load.busy_ratio("gpu", time.monotonic_ns(), time.monotonic_ns() + 9) == 1


def test_the_memory_of_loads_is_bounded():
    """After a great many changes the old ones are forgotten, the recent ones are exact."""
    load = LoadBoard()
    for n in range(50_000):
        load.set("gpu", n % 2, n)
    assert load.busy_ratio("gpu", 1_000, 2_000) in (0.0, 1.0)
    assert load.busy_ratio("gpu", 49_000, 50_000) == 0.5
