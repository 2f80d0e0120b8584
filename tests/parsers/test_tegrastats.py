"""Recorded lines read as reviewed, and each decision about the format has its test."""

import re
from collections import Counter
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import asdict, replace

from tegrascope.parsers.errors import ParseError
from tegrascope.parsers.records import Dla, Emc, Engine, Gpu, Rail, Sample
from tegrascope.parsers.tegrastats import PARSE_REASONS, parse_line
from tegrascope.parsers.tegrastats.line import LONGEST_LINE
from tests.golden import record_of, without_defaults

CAPTURES = sorted((Path(__file__).parents[1] / "captures").glob("*.txt"))
MEGA, MEBI = 10**6, 2**20


def read(tokens, *, unparsed=()):
    """Parse tokens behind a RAM token, so that the line is a record whatever they are."""
    sample = parse_line(f"RAM 1/2MB {tokens}")
    assert sample.unparsed == unparsed
    return sample


# Captures


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_capture_reads_as_reviewed(capture):
    """Each recorded board reads as it did when someone last looked."""
    lines = capture.read_text(encoding="utf-8").splitlines()
    golden = capture.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(golden)
    for line, expected in zip(lines, golden, strict=True):
        sample = parse_line(line)
        assert record_of(line) == expected
        assert msgspec.json.decode(expected, type=Sample) == sample


def test_boards_print_nothing_that_is_not_understood(captured_lines):
    """No word of a real record is left over; the one exception was put there by its author."""
    left = {word for line in captured_lines for word in parse_line(line).unparsed}
    assert left == {"FUTURE_TOKEN", "value"}


def numbers_in(text):
    """Count the numbers of a text that are not part of a name; knows nothing of the format."""
    apart = re.sub(r"(?<=\d)x(?=\d)", " ", text)
    return Counter(map(float, re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", apart)))


def numbers_of(sample, line):
    """Count the numbers that a record says were printed, back in printed units."""
    count = Counter()

    def add(value, scale=1.0):
        if value is not None:
            count[float(round(value / scale, 3))] += 1

    if sample.time is not None:
        for value in sample.time.timetuple()[:6]:
            add(value)
    for memory, unit in ((sample.ram, MEBI), (sample.swap, MEBI), (sample.iram, 1024)):
        if memory is not None:
            add(memory.used_bytes, unit)
            add(memory.total_bytes, unit)
    if sample.ram is not None and sample.ram.largest_free_block_bytes is not None:
        size = sample.ram.largest_free_block_bytes
        add(size, 1024 if size < MEBI else MEBI)
        add(sample.ram.largest_free_block_count)
    if sample.swap is not None:
        add(sample.swap.cached_bytes, MEBI)
    if sample.iram is not None:
        add(sample.iram.largest_free_block_bytes, 1024)
    one_clock = re.search(r"(?i)cpu \[[^]]*]@(\d+)", line)
    if one_clock:
        add(int(one_clock[1]))
    for core in sample.cpu:
        add(core.utilization_ratio, 0.01)
        add(None if one_clock else core.frequency_hertz, MEGA)
        if one_clock:
            assert core.frequency_hertz == (int(one_clock[1]) * MEGA if core.online else None)
    add(sample.edp_limit_hertz, MEGA)
    parts = [*sample.engines.values(), *sample.dla]
    if sample.emc == Emc():
        add(0)  # the constant that stands for "not measured"
    elif sample.emc is not None:
        parts.append(sample.emc)
    for part in parts:
        add(part.utilization_ratio, 0.01)
        add(part.frequency_hertz, MEGA)
    if sample.gpu is not None:
        for ratio in sample.gpu.cluster_utilization_ratio or (sample.gpu.utilization_ratio,):
            add(ratio, 0.01)
        for hertz in sample.gpu.frequency_hertz:
            add(hertz, MEGA)
    for celsius in sample.temperatures_celsius.values():
        add(-256 if celsius is None else celsius)
    for celsius in sample.temperatures_max_celsius.values():
        add(celsius)
    for rail in sample.rails.values():
        for watts in asdict(rail).values():
            add(watts, 0.001)
    return count


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_every_number_of_a_line_is_kept_once(capture):
    """The numbers printed are those in the record and those left over: none lost, none twice."""
    for line in capture.read_text(encoding="utf-8").splitlines():
        sample = parse_line(line)
        kept = numbers_of(sample, line) + numbers_in(" ".join(sample.unparsed))
        kept[0.0] += 2 * line.count("NC 0mW/0mW")
        assert numbers_in(re.sub(r"^[\d.]+::", "", line)) == kept, line


def test_zones_and_rails_agree_with_a_search_of_the_line(captured_lines):
    """A second way to find temperatures and powers, with nothing in common, finds the same."""
    for line in captured_lines:
        sample = parse_line(line)
        zones = {
            zone: None if now == "-256" else float(now)
            for zone, now in re.findall(r" (\w+)@(-?[\d.]+)C", line)
        }
        assert sample.temperatures_celsius == zones
        powers = re.findall(r" (\w+) (\d+)(?:mW)?/(\d+)(?:mW|(?= |$))(?:/(\d+)mW)?", line)
        rails = {
            name: tuple(int(number) / 1000 if number else None for number in numbers)
            for name, *numbers in powers
            if name != "NC"
        }
        assert {
            name: (rail.instant_watts, rail.average_watts, rail.maximum_watts)
            for name, rail in sample.rails.items()
        } == rails


def test_each_number_stands_under_its_own_field():
    """A line in which no number occurs twice shows where each one goes."""
    line = (
        "01-02-2003 04:05:06 RAM 10/11MB (lfb 12x13MB) SWAP 14/15MB (cached 16MB) "
        "IRAM 17/18kB(lfb 19kB) CPU [20%@21,off,22%@23] EMC_FREQ 24%@25 GR3D_FREQ 26%@[27,28] "
        "NVENC 29%@30 NVDEC_FREQ @31 NVJPG_LOAD 32% NVJPG1 33%@34 VIC_FREQ 35 OFA off "
        "NVDLA0 36%@37 NVDLA1_FREQ @38 PVA0_FREQ [39%,40%]@41 APE 42 MTS fg 43% bg 44% "
        "cpu@45.5C/46.25C gpu@-47C VDD_IN 48mW/49mW/50mW CPU 51/52 EDP limit 53"
    )
    assert without_defaults(parse_line(line)) == {
        "time": datetime(2003, 1, 2, 4, 5, 6),
        "ram": {
            "used_bytes": 10 * MEBI,
            "total_bytes": 11 * MEBI,
            "largest_free_block_count": 12,
            "largest_free_block_bytes": 13 * MEBI,
        },
        "swap": {
            "used_bytes": 14 * MEBI,
            "total_bytes": 15 * MEBI,
            "cached_bytes": 16 * MEBI,
        },
        "iram": {
            "used_bytes": 17 * 1024,
            "total_bytes": 18 * 1024,
            "largest_free_block_bytes": 19 * 1024,
        },
        "cpu": (
            {"core": 0, "online": True, "utilization_ratio": 0.2, "frequency_hertz": 21 * MEGA},
            {"core": 1, "online": False},
            {"core": 2, "online": True, "utilization_ratio": 0.22, "frequency_hertz": 23 * MEGA},
        ),
        "emc": {"utilization_ratio": 0.24, "frequency_hertz": 25 * MEGA},
        "gpu": {"utilization_ratio": 0.26, "frequency_hertz": (27 * MEGA, 28 * MEGA)},
        "engines": {
            "NVENC": {"state": "on", "utilization_ratio": 0.29, "frequency_hertz": 30 * MEGA},
            "NVDEC": {"state": "on", "frequency_hertz": 31 * MEGA},
            "NVJPG": {"utilization_ratio": 0.32},
            "NVJPG1": {"state": "on", "utilization_ratio": 0.33, "frequency_hertz": 34 * MEGA},
            "VIC": {"state": "on", "frequency_hertz": 35 * MEGA},
            "OFA": {"state": "off"},
            "PVA0": {"state": "on", "frequency_hertz": 41 * MEGA},
            "PVA0_VPU0": {"utilization_ratio": 0.39},
            "PVA0_VPU1": {"utilization_ratio": 0.4},
            "APE": {"state": "on", "frequency_hertz": 42 * MEGA},
            "MTS_FG": {"utilization_ratio": 0.43},
            "MTS_BG": {"utilization_ratio": 0.44},
        },
        "dla": (
            {"core": 0, "state": "on", "utilization_ratio": 0.36, "frequency_hertz": 37 * MEGA},
            {"core": 1, "state": "on", "frequency_hertz": 38 * MEGA},
        ),
        "temperatures_celsius": {"cpu": 45.5, "gpu": -47.0},
        "temperatures_max_celsius": {"cpu": 46.25},
        "rails": {
            "VDD_IN": {"instant_watts": 0.048, "average_watts": 0.049, "maximum_watts": 0.05},
            "CPU": {"instant_watts": 0.051, "average_watts": 0.052},
        },
        "edp_limit_hertz": 53 * MEGA,
    }


# Faults that published parsers have


@pytest.mark.parametrize(
    ("printed", "gpu"),
    [
        ("7%@[305]", Gpu(utilization_ratio=0.07, frequency_hertz=(305 * MEGA,))),
        ("7%@[305,0]", Gpu(utilization_ratio=0.07, frequency_hertz=(305 * MEGA, 0))),
        ("7%@[1,2,3]", Gpu(utilization_ratio=0.07, frequency_hertz=(MEGA, 2 * MEGA, 3 * MEGA))),
        ("7%@305", Gpu(utilization_ratio=0.07, frequency_hertz=(305 * MEGA,))),
        ("7%", Gpu(utilization_ratio=0.07)),
        ("@[314,314,314]", Gpu(frequency_hertz=(314 * MEGA,) * 3)),
        ("@[0,0]", Gpu(frequency_hertz=(0, 0))),
        ("@0", Gpu(frequency_hertz=(0,))),
    ],
)
@pytest.mark.parametrize("label", ["GR3D_FREQ", "GR3D"])
def test_gpu_is_read_with_any_number_of_clocks_and_without_a_load(label, printed, gpu):
    """Brackets, one cluster or three, and a load that is missing stays unknown."""
    assert read(f"{label} {printed}").gpu == gpu


def test_minus_256_is_neither_a_temperature_nor_256():
    """A gated zone is there, without a reading."""
    assert read("CV0@-256C CPU@49.343C").temperatures_celsius == {"CV0": None, "CPU": 49.343}


def test_temperature_of_r39_is_not_lost_at_the_stroke():
    """Both numbers are kept, apart."""
    sample = read("tj@35.906C/36C")
    assert sample.temperatures_celsius == {"tj": 35.906}
    assert sample.temperatures_max_celsius == {"tj": 36.0}


@pytest.mark.parametrize("unit", ["", "mW"])
@pytest.mark.parametrize("numbers", [(5139, 4890), (5139, 4890, 6000)])
def test_rail_needs_neither_its_unit_nor_exactly_two_numbers(unit, numbers):
    """R32 prints no unit, R39 a third number."""
    printed = "/".join(f"{number}{unit}" for number in numbers)
    assert read(f"VDD_IN {printed}").rails == {
        "VDD_IN": Rail(
            instant_watts=5.139,
            average_watts=4.89,
            maximum_watts=6.0 if len(numbers) == 3 else None,
        )
    }


def test_rail_of_one_number():
    """Reduced samples have the present power alone."""
    assert read("VDD_IN 5765mW").rails == {"VDD_IN": Rail(instant_watts=5.765)}


@pytest.mark.parametrize(
    "name", ["GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V", "VIN", "POM_5V_IN", "VDDQ_VDD2_1V8AO"]
)
def test_rail_needs_no_particular_name(name):
    """AGX Xavier, Nano and Thor have rails without ``VDD_`` in front."""
    assert read(f"{name} 463/464").rails == {name: Rail(instant_watts=0.463, average_watts=0.464)}


def test_missing_percentage_is_not_zero():
    """EMC, GPU, DLA and engines with a clock alone have no load."""
    sample = read("EMC_FREQ @3199 GR3D_FREQ @[0,0] NVDLA0_FREQ @1600 VIC_FREQ 115")
    parts = (sample.emc, sample.gpu, sample.dla[0], sample.engines["VIC"])
    assert [part.utilization_ratio for part in parts] == [None] * 4


def test_dla_is_not_thrown_away():
    """Each form of the DLA's token is in the record, under ``dla``."""
    assert read("NVDLA0 off NVDLA1 59%@1600").dla == (
        Dla(core=0, state="off"),
        Dla(core=1, state="on", utilization_ratio=0.59, frequency_hertz=1600 * MEGA),
    )


def test_core_list_zone_and_rail_of_one_name_are_three_things():
    """The shape of what follows ``CPU`` decides, in any order."""
    tokens = ["CPU [5%@729]", "CPU@37.5C", "CPU 311/312"]
    for order in (tokens, tokens[::-1]):
        sample = read(" ".join(order))
        assert [core.frequency_hertz for core in sample.cpu] == [729 * MEGA]
        assert sample.temperatures_celsius == {"CPU": 37.5}
        assert sample.rails == {"CPU": Rail(instant_watts=0.311, average_watts=0.312)}


def test_line_without_swap_is_a_record():
    """Swap may be off; then nothing is said of it."""
    assert parse_line("RAM 519/7607MB (lfb 61x4MB) CPU [0%@1728]").swap is None


# Decisions


@pytest.mark.parametrize(
    ("printed", "engine"),
    [
        ("off", Engine(state="off")),
        ("OFF", Engine(state="off")),
        ("7%", Engine(utilization_ratio=0.07)),
        ("@0", Engine(state="off", frequency_hertz=0)),
        ("@9", Engine(state="on", frequency_hertz=9 * MEGA)),
        ("@[9]", Engine(state="on", frequency_hertz=9 * MEGA)),
        ("7%@9", Engine(state="on", utilization_ratio=0.07, frequency_hertz=9 * MEGA)),
        ("7%@[9]", Engine(state="on", utilization_ratio=0.07, frequency_hertz=9 * MEGA)),
    ],
)
@pytest.mark.parametrize("suffix", ["", "_FREQ", "_LOAD"])
def test_every_engine_takes_every_form(printed, engine, suffix):
    """The form says which of load and clock a build could read, the name says nothing."""
    for name in ("NVENC", "NVDEC1", "NVJPG", "VIC", "OFA", "PVA0", "APE", "NEWENGINE7"):
        assert read(f"{name}{suffix} {printed} tj@1C").engines == {name: engine}
    dla = Dla(core=1, **engine.model_dump())
    assert read(f"NVDLA1{suffix} {printed}").dla == (dla,)


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("NVENC0", "NVENC"),
        ("MSENC", "NVENC"),
        ("NVDEC0_FREQ", "NVDEC"),
        ("NVJPG0", "NVJPG"),
        ("NVJPG1", "NVJPG1"),
        ("NVENC1_FREQ", "NVENC1"),
        ("VIC_FREQ", "VIC"),
        ("OFA0", "OFA"),
        ("PVA", "PVA0"),
        ("PVA0_FREQ", "PVA0"),
        ("PVA1_FREQ", "PVA1"),
    ],
)
def test_engine_has_one_name_on_all_releases(printed, name):
    """R36 and R39 name the first engine of a kind differently, the record does not."""
    assert list(read(f"{printed} off").engines) == [name]


@pytest.mark.parametrize("again", ["NVENC_LOAD @9", "NVENC_FREQ @9", "NVENC0 8%@9"])
def test_engine_that_stands_in_a_line_twice_counts_once(again):
    """No release prints load and clock of an engine apart."""
    sample = read(f"NVENC_LOAD 7% {again}", unparsed=tuple(again.split()))
    assert sample.engines == {"NVENC": Engine(utilization_ratio=0.07)}


def test_vector_units_of_the_pva_have_loads_of_their_own():
    """The clock is the PVA's, the loads are its units'."""
    assert read("PVA0_FREQ [5%,6%]@7").engines == {
        "PVA0": Engine(state="on", frequency_hertz=7 * MEGA),
        "PVA0_VPU0": Engine(utilization_ratio=0.05),
        "PVA0_VPU1": Engine(utilization_ratio=0.06),
    }


def test_two_clusters_printed_apart():
    """``GR3D2_FREQ`` is the second cluster; the GPU's load is that of ``GR3D_FREQ``."""
    assert read("GR3D_FREQ 67%@407 GR3D2_FREQ 66%@0").gpu == Gpu(
        utilization_ratio=0.67,
        frequency_hertz=(407 * MEGA, 0),
        cluster_utilization_ratio=(0.67, 0.66),
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("", "66%@7"),
        ("GR3D_FREQ 5%", "66%@7"),
        ("GR3D_FREQ @5", "66%@7"),
        ("GR3D_FREQ 5%@[1,2]", "66%@7"),
        ("GR3D_FREQ 5%@[1,2]", "66%@[7,8]"),
        ("GR3D_FREQ 5%@6", "off"),
    ],
)
def test_second_cluster_without_its_like_is_left_over(first, second):
    """A cluster that cannot be put beside the first would shift the others."""
    read(f"{first} GR3D2_FREQ {second}", unparsed=("GR3D2_FREQ", second))


@pytest.mark.parametrize("label", ["EMC", "EMC_FREQ"])
def test_emc_load_without_clock_is_not_measured(label):
    """An unprivileged tegrastats prints a constant 0 there; the token is noted, not the number."""
    assert read(f"{label} 0%").emc == Emc()
    assert read(f"{label} 3%@2133").emc == Emc(utilization_ratio=0.03, frequency_hertz=2133 * MEGA)
    assert parse_line("RAM 1/2MB").emc is None


@pytest.mark.parametrize("label", ["CPU", "cpu"])
def test_old_list_of_cores_has_one_clock(label):
    """The clock behind the list is that of each core that is online."""
    cores = read(f"{label} [0%,5%,off]@2601").cpu
    assert [core.online for core in cores] == [True, True, False]
    assert [core.utilization_ratio for core in cores] == [0.0, 0.05, None]
    assert [core.frequency_hertz for core in cores] == [2601 * MEGA, 2601 * MEGA, None]


def test_unconnected_channels_are_ignored():
    """``NC`` may stand there any number of times and is no rail."""
    assert read("NC 0mW/0mW VDD_IN 1mW/1mW NC 0mW/0mW NC 5/5").rails.keys() == {"VDD_IN"}


@pytest.mark.parametrize(
    "tokens",
    ["VDD_IN 1mW/2mW", "tj@5C", "NVENC off", "NVDLA0 off", "MTS fg 1% bg 2%", "VIC_FREQ 115"],
)
def test_name_seen_twice_counts_once(tokens):
    """The first stays, the second is left over word by word."""
    again = tokens.translate(str.maketrans("125", "346"))
    both = read(f"{tokens} {again}", unparsed=tuple(again.split()))
    assert read(tokens) == replace(both, unparsed=())


@pytest.mark.parametrize(
    "tokens",
    [
        "GR3D_FREQ 101%@5",
        "EMC_FREQ 101%@5",
        "NVENC 101%@5",
        "CPU [5%@6,101%@7]",
        "MTS fg 101% bg 0%",
        "GR3D_FREQ off",
        "GR3D_FREQ 1",
        "EMC_FREQ off",
        "EMC_FREQ 1",
        "EMC 1",
        "NVDLA0_LOAD 0",
        "tj@9999C",
        "tj@-300C",
        "tj@47C/9999C",
        "SWAP 5/2MB (cached 1MB)",
        "IRAM 5/2kB",
        f"CPU [{'5%,' * 64}5%]",
        "EMC_FREQ 5%@[6,7]",
        "NVENC 5%@[6,7]",
        "NVENC [5%,6%]@7",
        "EDP limit",
        "EDP limit 5%",
        "Carveout 12/12MB",
        "step 3/4",
        "RAM 13983",
        "CPU 5%",
        "VDD_IN 39",
        "VDD_IN off",
        "MTS 5/6",
        "GR3D_FREQ 5/6",
        "hello 42",
        "H 42 NVENC",
        "NEWRAIL 39",
        "99-99-9999 00:00:00",
        "01-02-2003 99",
        "tj@C",
        f"NVENC {'9' * 5000}",
        f"tj@{'9' * 400}C",
        f"GR3D_FREQ @[{','.join('9' * 5000)}",
        "NVENC \N{ARABIC-INDIC DIGIT FIVE}%",
        "\N{FULLWIDTH LATIN CAPITAL LETTER V}IC off",
    ],
)
def test_what_cannot_be_is_left_over(tokens):
    """Loads above 100 %, foreign digits, cut words: kept word by word, and read as nothing."""
    assert read(tokens, unparsed=tuple(tokens.split())) == Sample(
        ram=parse_line("RAM 1/2MB").ram, unparsed=tuple(tokens.split())
    )


def test_bare_number_is_the_clock_of_an_engine_unless_its_label_is_a_load():
    engine = Engine(state="on", frequency_hertz=9 * MEGA)
    for label in ("NVENC", "NVENC_FREQ", "VIC_FREQ", "APE", "NVDLA1_FREQ"):
        sample = read(f"{label} 9 tj@1C")
        assert [*sample.engines.values(), *sample.dla] == [
            Dla(core=1, **engine.model_dump()) if "NVDLA" in label else engine
        ]


def test_more_memory_in_use_than_there_is_is_left_over():
    sample = parse_line("RAM 5/2MB (lfb 1x4MB) tj@5C gpu@6C")
    assert sample.ram is None
    assert sample.unparsed == ("RAM", "5/2MB", "(lfb", "1x4MB)")
    assert read("SWAP 2/2MB tj@-100C gpu@200C").swap.used_bytes == 2 * MEBI


def test_one_line_does_not_make_thousands_of_time_series():
    assert len(read(f"CPU [{','.join(['5%'] * 64)}]").cpu) == 64
    for names in (
        " ".join(f"z{n}@5C" for n in range(300)),
        " ".join(f"R{n} 1/1" for n in range(300)),
    ):
        with pytest.raises(ParseError, match="noise"):
            parse_line(f"RAM 1/2MB {names}")


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        ("GR3D_FREQ 14%@[407,407] EMC_FREQ 1", ("EMC_FREQ", "1")),
        ("GR3D_FREQ 14%@[407,407] VIC_FREQ 1", ("VIC_FREQ", "1")),
        ("tj@5C GPU 463/4", ("GPU", "463/4")),
        ("tj@5C gpu@4C", ("gpu@4C",)),
        ("CPU [5%@729] tj@5C", ("tj@5C",)),
    ],
)
def test_last_word_of_a_cut_line_is_not_certain(cut, left):
    """Up to its last blank the line is the record that it was."""
    line = f"RAM 1/2MB {cut}"
    kept = parse_line(f"{line.removesuffix(' '.join(left))}")
    assert parse_line(line, is_cut=True) == replace(kept, unparsed=left)
    assert parse_line(f"{line} ", is_cut=True) == parse_line(line)


def test_bare_number_of_an_unknown_engine_must_not_be_the_last_word():
    """At the end of a line it may be a rail that was cut; elsewhere it is a new engine."""
    assert list(read("NEWENGINE 39 tj@5C").engines) == ["NEWENGINE"]
    assert read("NEWENGINE 39", unparsed=("NEWENGINE", "39")).engines == {}
    assert list(read("APE 174").engines) == ["APE"]


def test_rail_keeps_what_is_certain():
    """Where one of its numbers lost its unit, that number is left over and the others count."""
    line = "VDD_IN 3913mW/3922mW VDD_CPU_GPU_CV 598mW/598 VDD_SOC 1238mW/1237mW"
    sample = parse_line(line)
    assert sample.rails["VDD_CPU_GPU_CV"] == Rail(instant_watts=0.598)
    assert sample.rails["VDD_SOC"] == Rail(instant_watts=1.238, average_watts=1.237)
    assert sample.unparsed == ("/598",)


def test_notes_of_memory_may_be_missing_or_cut():
    """What stands in brackets is read if whole; the sizes before it count either way."""
    assert read("SWAP 0/3MB").swap.cached_bytes is None
    assert read("SWAP 0/3MB (cached", unparsed=("(cached",)).swap.total_bytes == 3 * MEBI
    assert read("SWAP 0/3MB (lfb 1MB)", unparsed=("(lfb", "1MB)")).swap.cached_bytes is None
    left = ("(cached", "3x1MB)")
    assert read("SWAP 0/3MB (cached 3x1MB)", unparsed=left).swap.cached_bytes is None
    assert read("IRAM 0/252kB(lfb 25", unparsed=("(lfb", "25")).iram.total_bytes == 252 * 1024


@pytest.mark.parametrize(
    ("before", "left"),
    [
        ("123456789012::", ()),
        ("12.5::", ()),
        ("host tegrastats[12]: ", ("host", "tegrastats[12]:")),
        ('tegrastats_line="', ("tegrastats_line=", '"')),
        ("^C", ("^C",)),
        ("\x1b[0m", ("\x1b[0m",)),
        ("\x00", ("\x00",)),
        ("\N{BYTE ORDER MARK}", ()),
    ],
)
def test_text_before_the_record_does_not_lose_it(before, left):
    """A shell's or a logger's text is left over; a time without a date and a mark are dropped."""
    record = "RAM 1/2MB tj@5C"
    assert parse_line(before + record) == replace(parse_line(record), unparsed=left)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", " ", "   \n"])
def test_end_of_line_does_not_matter(end):
    """Line ends and trailing blanks are no part of the record, nor are double blanks in it."""
    assert parse_line(f"RAM  1/2MB   tj@5C{end}") == parse_line("RAM 1/2MB tj@5C")


RECORD = "RAM 1/2MB SWAP 0/0MB CPU [5%@6] tj@5C VDD_IN 1mW/1mW"
OTHER = "RAM 3/4MB IRAM 7/8kB CPU [7%@8] gpu@6C VDD_SOC 2mW/2mW"


@pytest.mark.parametrize("glue", [" ", '"', "\r", " 01-02-2003 04:05:06 "])
def test_second_record_of_a_line_is_left_over(glue):
    """Not one value of it comes into the first."""
    sample = parse_line(RECORD + glue + OTHER)
    left = (glue.split() if glue != '"' else ['"']) + OTHER.split()
    assert sample == replace(parse_line(RECORD), unparsed=tuple(left))


@pytest.mark.parametrize("head", ["", "01-02-2003 04:05:06 "])
def test_tail_of_a_lost_record_before_a_whole_one_is_left_over(head):
    """A record whose head is lost ends where a timestamp stands, or where names repeat."""
    tail = "tj@9C VDD_IN 9mW/9mW"
    sample = parse_line(f"{tail} {head}{RECORD}")
    whole = parse_line(head + RECORD)
    assert sample == replace(whole, unparsed=tuple(tail.split()))


def test_second_record_without_its_head_does_not_come_in():
    """What a record has once marks the next one, where that has lost its RAM."""
    sample = parse_line(f"{RECORD} 3/4MB SWAP 5/6MB CPU [7%@8] gpu@6C")
    assert sample.unparsed == ("3/4MB", "SWAP", "5/6MB", "CPU", "[7%@8]", "gpu@6C")


@pytest.mark.parametrize("line", ["", " ", "\r\n", "\t \x0b", "1750866199.3488::"])
def test_empty(line):
    """A line of blanks is told apart from one of noise."""
    with pytest.raises(ParseError) as caught:
        parse_line(line)
    assert (caught.value.reason, caught.value.line) == ("empty", line)


@pytest.mark.parametrize(
    "line",
    [
        "Tue Jan 26 18:22:31 UTC 2021",
        "pon, 6 maj 2024, 18:27:46 UTC",
        "user@board:~$ sudo /usr/bin/tegrastats ",
        "[sudo] password for user: ",
        "\x1b]0;user@board: ~/runs\x07\x1b[01;32muser@board\x1b[00m:\x1b[01;34m~/runs\x1b[00m$ l\r",
        "^C\r",
        "drwxrwxr-x 3 user user 4096 Mai 26 17:13 \x1b[0m\x1b[01;34mPC\x1b[0m\r",
        "hello 42 world",
        "HELLO 42 WORLD 7 CODE 404",
        "EPOCH 3/4 STEP 10/100",
        "NVENC off NVDEC off",
        "RAM 13983",
        "RAM",
        "tj@45C",
        "01-02-2003 04:05:06 service started",
        "\x00\x00",
        "42%",
        "GPU 311/311",
    ],
)
def test_noise(line):
    """Prompts, dates and prose are no records, and neither is one sign alone."""
    with pytest.raises(ParseError) as caught:
        parse_line(line)
    assert (caught.value.reason, caught.value.line) == ("noise", line)


def test_long():
    """A line beyond any sense is refused before it costs anything."""
    line = "RAM 1/2MB ".ljust(LONGEST_LINE)
    assert parse_line(line).ram is not None
    with pytest.raises(ParseError) as caught:
        parse_line(line + " ")
    assert caught.value.reason == "long"


def test_reasons_are_few_and_known():
    """They become values of a metric label."""
    assert PARSE_REASONS == ("empty", "noise", "long")


def test_two_signs_make_a_record_without_ram():
    """A record that lost its head is worth what is left of it."""
    assert parse_line("tj@45C gpu@44C").temperatures_celsius == {"tj": 45.0, "gpu": 44.0}


def test_line_is_kept_where_asked_for():
    """Verbatim, prefix and all; lone surrogates alone are replaced, as no file could hold them."""
    line = "1750866199.3::RAM 1/2MB \udcff\r\n"
    assert parse_line(line).source_line is None
    kept = parse_line(line, keep_line=True)
    assert kept.source_line == line.replace("\udcff", "\ufffd")
    assert kept.unparsed == ("\ufffd",)
    assert msgspec.json.decode(kept.model_dump_json(), type=Sample) == kept
