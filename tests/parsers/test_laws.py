"""What holds for any text and any record; the examples are the same on every run."""

from datetime import datetime
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tegrascope.parsers.errors import ParseError
from tegrascope.parsers.records import Core, Dla, Emc, Engine, Gpu, Iram, Rail, Ram, Sample, Swap
from tegrascope.parsers.tegrastats import PARSE_REASONS, parse_line, render_line
from tegrascope.parsers.tegrastats.line import KINDS, split_words
from tegrascope.parsers.tegrastats.prefix import read_prefix

LAW = settings(derandomize=True, deadline=None, database=None, max_examples=300)
MEGA, MEBI = 10**6, 2**20

CAPTURES = Path(__file__).parents[1] / "captures"
LINES = [
    # One line of each board and release is enough to be mutated.
    path.read_text(encoding="utf-8").splitlines()[0]
    for path in sorted(CAPTURES.glob("*.txt"))
]


def check_any(line):
    """Hold a line against what is promised for every text; give back its Sample, if any."""
    try:
        sample = parse_line(line, keep_line=True)
    except ParseError as error:
        assert error.reason in PARSE_REASONS
        assert error.line == line
        return None
    assert msgspec.json.decode(sample.model_dump_json(), type=Sample) == sample
    # What is left over stands in the line, in that order, and no piece of it twice.
    rest = "".join(split_words(read_prefix(sample.source_line).rest))
    at = 0
    for word in sample.unparsed:
        at = rest.index(word, at) + len(word)
    return sample


# Any text

anything = st.text(st.characters(exclude_categories=()))
pieces = st.sampled_from(
    [
        *("RAM", "SWAP", "IRAM", "CPU", "cpu", "EMC_FREQ", "GR3D_FREQ", "GR3D2_FREQ", "MTS"),
        *("fg", "bg", "EDP", "limit", "NVDLA0", "NVDLA0_FREQ", "NVENC_LOAD", "PVA0_FREQ", "APE"),
        *("NC", "VDD_IN", "GPU", "tj@", "1/2MB", "0/252kB(lfb", "252kB)", "(lfb", "3x4MB)"),
        *("(cached", "5MB)", "[5%@6,off]", "[5%,6%]@7", "off", "OFF", "8%", "@9", "8%@9"),
        *("8%@[9,0]", "tj@45.5C", "CV0@-256C", "gpu@1C/2C", "5mW", "5mW/6mW", "5/6", "5/6/7"),
        *("5mW/6", "115", "01-02-2003", "04:05:06", "1750866199.3::", '"', "\x00", "\r", "\x1b[K"),
        *("%", "@", "[", "]", "/", "C", "x", "9" * 5000, "\udcff", "\N{ARABIC-INDIC DIGIT FIVE}"),
    ]
)
soup = st.builds(
    str.join, st.sampled_from([" ", "", "  "]), st.lists(pieces | st.text(max_size=5), max_size=40)
)


@given(anything | soup)
@LAW
def test_no_text_is_fatal(text):
    """Whatever is printed is a Sample or a ParseError, and no word is counted twice."""
    check_any(text)


@st.composite
def damaged(draw):
    """Cut, splice, repeat and swap parts of recorded lines."""
    line = draw(st.sampled_from(LINES))
    for _ in range(draw(st.integers(1, 4))):
        here, there = sorted(draw(st.tuples(*[st.integers(0, len(line))] * 2)))
        line = draw(
            st.sampled_from(
                [
                    line[:here],
                    line[here:],
                    line[:here] + line[there:],
                    line[:there] + line[here:],
                    line[:here] + line[there : there + 1] + line[here + 1 :],
                    line[:here] + draw(st.sampled_from(LINES))[there:],
                    line[:here] + draw(pieces) + line[here:],
                ]
            )
        )
    return line


@given(damaged())
@LAW
def test_no_damage_is_fatal(line):
    """A record that was cut, spliced or overwritten is read as far as it goes."""
    check_any(line)


def test_cut_between_words_changes_nothing_before_the_cut():
    """Of a record that ends early, each value that is there is the one of the whole record."""
    for line in LINES:
        whole = parse_line(line)
        if whole.unparsed:
            continue
        words = read_prefix(line).rest.split(" ")
        for count in range(len(words)):
            cut = check_any(" ".join(words[:count]))
            if cut is None:
                continue
            for field in ("time", "cpu", "emc", "edp_limit_hertz"):
                assert getattr(cut, field) in (getattr(whole, field), None, ())
            for field in (
                "engines",
                "temperatures_celsius",
                "temperatures_max_celsius",
                "rails",
            ):
                assert getattr(cut, field).items() <= getattr(whole, field).items()
            assert set(cut.dla) <= set(whole.dla)


def test_of_two_records_on_a_line_the_first_is_read():
    """Any recorded line behind any other changes nothing but what is left over."""
    for first in LINES:
        alone = parse_line(first)
        if alone.ram is None or "tegrastats_line" in first:
            continue
        for second in LINES:
            if "RAM" not in second:
                continue
            both = parse_line(f"{first} {second}")
            assert replace(both, unparsed=alone.unparsed) == alone
            left = tuple(split_words(f"x {second}")[1:])
            assert both.unparsed == alone.unparsed + left


# Any record. Strategies are made here, once: to make one takes longer than to draw from it.

sizes = st.integers(0, 200_000).map(lambda number: number * MEBI)
small_sizes = st.integers(0, 4096).map(lambda number: number * 1024)
ratios = st.integers(0, 100).map(lambda percent: percent / 100)
clocks = st.integers(0, 4000).map(lambda megahertz: megahertz * MEGA)
running = st.integers(1, 4000).map(lambda megahertz: megahertz * MEGA)
watts = st.integers(-5_000, 200_000).map(lambda milliwatts: milliwatts / 1000)
celsius = st.integers(-40_000, 125_000).map(lambda thousandths: thousandths / 1000)
times = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(
    lambda time: time.replace(microsecond=0)
)


@st.composite
def pairs(draw, sizes):
    """A part and its whole."""
    return sorted((draw(sizes), draw(sizes)))


two_sizes = pairs(sizes)
block_sizes = st.sampled_from([1024 * 2**power for power in range(2, 13)])
block_counts = st.integers(0, 100_000)


@st.composite
def rams(draw):
    """RAM with its free blocks, or without."""
    pair = dict(zip(("used_bytes", "total_bytes"), draw(two_sizes), strict=True))
    if draw(st.booleans()):
        return Ram(**pair)
    size = draw(block_sizes)
    return Ram(**pair, largest_free_block_bytes=size, largest_free_block_count=draw(block_counts))


core_states = st.lists(st.none() | st.tuples(ratios, clocks), max_size=14)


@st.composite
def cores(draw):
    """Up to fourteen cores, some of them off."""
    states = draw(core_states)
    return tuple(
        Core(core=number, online=False)
        if state is None
        else Core(core=number, online=True, utilization_ratio=state[0], frequency_hertz=state[1])
        for number, state in enumerate(states)
    )


def states_of(kind, **more):
    """Every state that an engine can be printed in."""
    return st.one_of(
        st.builds(kind, state=st.just("off"), **more),
        st.builds(kind, utilization_ratio=ratios, **more),
        st.builds(kind, state=st.just("off"), frequency_hertz=st.just(0), **more),
        st.builds(kind, state=st.just("on"), frequency_hertz=running, **more),
        st.builds(
            kind,
            state=st.just("on"),
            utilization_ratio=ratios,
            frequency_hertz=running,
            **more,
        ),
    )


maybe_ratios = st.none() | ratios
cluster_clocks = st.lists(clocks, max_size=3)


@st.composite
def gpus(draw):
    """The GPU with one, two or three clusters, or two printed apart."""
    load, hertz = draw(maybe_ratios), tuple(draw(cluster_clocks))
    if load is None and not hertz:
        return Gpu(utilization_ratio=draw(ratios))
    if load is not None and len(hertz) in (0, 2) and draw(st.booleans()):
        loads = (load, draw(ratios))
        return Gpu(utilization_ratio=load, frequency_hertz=hertz, cluster_utilization_ratio=loads)
    return Gpu(utilization_ratio=load, frequency_hertz=hertz)


engine_states = states_of(Engine)
engine_names = st.lists(
    st.sampled_from(
        ["NVENC", "NVENC1", "NVDEC", "NVJPG", "NVJPG1", "VIC", "OFA", "PVA0", "APE", "NEW7"]
    ),
    unique=True,
)


@st.composite
def engines(draw):
    """Some of the engines there are, in any order, and one nobody knows yet."""
    some = {name: draw(engine_states) for name in draw(engine_names)}
    if draw(st.booleans()):
        some["MTS_FG"] = Engine(utilization_ratio=draw(ratios))
        some["MTS_BG"] = Engine(utilization_ratio=draw(ratios))
    if draw(st.booleans()):
        some["PVA1"] = Engine(state="on", frequency_hertz=draw(running))
        some["PVA1_VPU0"] = Engine(utilization_ratio=draw(ratios))
        some["PVA1_VPU1"] = Engine(utilization_ratio=draw(ratios))
    return some


zone_names = ["cpu", "gpu", "tj", "CPU", "CV0", "soc012", "Tboard_tegra"]
temperatures = st.dictionaries(st.sampled_from(zone_names), st.none() | celsius)
maxima = celsius | st.none()  # None: that zone has none
rails = st.dictionaries(
    st.sampled_from(["VDD_IN", "GPU", "CPU", "SOC", "VIN", "POM_5V_IN", "VDDQ_VDD2_1V8AO"]),
    st.one_of(
        st.builds(Rail, instant_watts=watts),
        st.builds(Rail, instant_watts=watts, average_watts=watts),
        st.builds(Rail, instant_watts=watts, average_watts=watts, maximum_watts=watts),
    ),
)
maybe_times = st.none() | times
whole_rams = rams()
maybe_swaps = st.none() | st.builds(
    lambda pair, cached: Swap(*pair, cached), two_sizes, st.none() | sizes
)
maybe_irams = st.none() | st.builds(
    lambda pair, block: Iram(*pair, block), pairs(small_sizes), st.none() | small_sizes
)
some_cores = cores()
maybe_clocks = st.none() | clocks
maybe_emcs = (
    st.none()
    | st.just(Emc())
    | st.builds(Emc, utilization_ratio=maybe_ratios, frequency_hertz=clocks)
)
maybe_gpus = st.none() | gpus()
some_engines = engines()
dla_counts = st.integers(0, 2)
dla_states = [states_of(Dla, core=st.just(core)) for core in (0, 1)]


@st.composite
def samples(draw):
    """A record on the grid of the units that are printed, with all or any of its parts."""
    zones = draw(temperatures)
    limits = {name: draw(maxima) for name in zones}
    return Sample(
        time=draw(maybe_times),
        ram=draw(whole_rams),
        swap=draw(maybe_swaps),
        iram=draw(maybe_irams),
        cpu=draw(some_cores),
        edp_limit_hertz=draw(maybe_clocks),
        emc=draw(maybe_emcs),
        gpu=draw(maybe_gpus),
        engines=draw(some_engines),
        dla=tuple(draw(states) for states in dla_states[: draw(dla_counts)]),
        temperatures_celsius=zones,
        temperatures_max_celsius={
            name: limit for name, limit in limits.items() if limit is not None
        },
        rails=draw(rails),
    )


records = samples()


def tokens_of(sample):
    """Return the tokens of the line of a record."""
    return [token for kind in KINDS for token in kind.render(sample)]


@given(records)
@LAW
def test_what_is_printed_is_read_back(sample):
    """Rendering and reading are inverse on every record that a board could print."""
    assert parse_line(render_line(sample)) == sample


@given(records, st.data())
@LAW
def test_order_of_tokens_does_not_matter(sample, data):
    """Releases order zones, rails and engines differently; labels decide, never places."""
    head, *tokens = tokens_of(sample)
    if sample.time is None:
        tokens, head = [head, *tokens], ""
    shuffled = data.draw(st.permutations(tokens))
    assert parse_line(" ".join([head, *shuffled])) == sample


foreign = st.sampled_from(
    [
        *("FUTURE_TOKEN", "value", "{", "]", "1.5V", "1/2", "12", "x@y", "lower", "5%@", "Watt:"),
        *("\x1b[K", "\N{BLACK STAR}", "12/12MB", "NVDLA", "RAM", "CPU", "MTS", "EDP", "tj@45"),
    ]
)


@given(records, st.data())
@LAW
def test_foreign_words_cost_nothing_but_themselves(sample, data):
    """Words put between the tokens are left over in their order, and the record is the same."""
    words, put = [], []
    for token in tokens_of(sample):
        words.append(token)
        if data.draw(st.booleans()):
            put.append(data.draw(foreign))
            words.append(put[-1])
    read = parse_line(" ".join(words))
    assert read == replace(sample, unparsed=tuple(put))
