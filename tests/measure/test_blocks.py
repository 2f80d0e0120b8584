import math
import struct
import zlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.daemon.measure.blocks import Block, CorruptBlockError, decode, encode

INSTANTS = st.integers(-(2**62), 2**62 - 1)
NAMES = st.text(st.characters(blacklist_categories=["Cs"]))
PRINTED = st.one_of(
    st.integers(0, 10**6).map(lambda n: n / 1000),
    st.integers(0, 2**20).map(lambda n: n * 1048576.0),
    st.just(math.nan),
)

WRITTEN_ONCE = (
    "74676202789c5dcdc10a83300c06e077c93994d6aecc7af6b28bc75d86942222855a479b224c7cf7"
    "55c610cc213f842fc90669c97118a1011aa76813594a80406e1e9309099a97e0ffc28a735d525412"
    "2517f56fda23acd6fb0b5627ae4fac0a1e169fe7036f10adf3893ddbd63c3ae642791ec8ac96e838"
    "a598901a4bbf6bbc315d36a77766999c771f4b6e09261e5124670a43f61e399397eaf7fd0baf3d40"
    "d7"
)


@st.composite
def blocks(draw, values):
    count = draw(st.integers(0, 30))
    instants = st.lists(INSTANTS, min_size=count, max_size=count)
    column = st.lists(values, min_size=count, max_size=count).map(lambda v: array("d", v))
    return Block(
        draw(NAMES),
        array("q", draw(instants)),
        array("q", draw(instants)),
        draw(st.dictionaries(NAMES, column, max_size=6)),
    )


def bits(column):
    return [b"absent" if math.isnan(v) else struct.pack("<d", v) for v in column]


def assert_same(left, right):
    assert (left.source, left.times_ns, left.wall_ns) == (
        right.source,
        right.times_ns,
        right.wall_ns,
    )
    assert list(left.columns) == list(right.columns)
    for name in left.columns:
        assert bits(left.columns[name]) == bits(right.columns[name])


@given(st.one_of(blocks(st.floats(allow_infinity=False)), blocks(PRINTED)))
def test_every_bit_comes_back(block):
    """Whatever float64 is in a block, and whatever its names are, it is the same once decoded."""
    assert_same(decode(encode(block)), block)


@given(blocks(PRINTED), st.integers(1, 200))
def test_damage_never_gives_other_numbers(block, place):
    """A block that was cut is an error; one that was changed too, or the bits had no meaning."""
    data = encode(block)
    with pytest.raises(CorruptBlockError):
        decode(data[: -min(place, len(data))])
    at = place % len(data)
    changed = data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]
    try:
        decoded = decode(changed)
    except CorruptBlockError:
        return
    # The last byte of deflate may have bits that nothing reads.
    assert_same(decoded, block)


@given(st.binary(max_size=60))
def test_no_bytes_are_a_surprise(data):
    """Any bytes are a block or a CorruptBlockError, which is a ValueError."""
    with pytest.raises(ValueError, match="block"):
        decode(data)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"source": "s", "times_ns": [1], "wall_ns": [], "columns": {}}',
        '{"source": "s", "times_ns": [1], "wall_ns": [2], "columns": {"a": [1.0, 2.0]}}',
        '{"source": "s", "times_ns": [1], "wall_ns": [2], "columns": {"a": ["x"]}}',
        '{"source": "s", "times_ns": [9223372036854775808], "wall_ns": [2], "columns": {}}',
    ],
)
def test_nonsense_in_the_right_frame_is_refused(text):
    with pytest.raises(CorruptBlockError):
        decode(b"tgb\x02" + zlib.compress(text.encode()))


def test_bytes_that_unpack_to_more_than_a_block_are_refused_unread():
    inflated = b" " * (1 << 20)
    deflater = zlib.compressobj()
    bomb = b"".join(deflater.compress(inflated) for _ in range(256)) + deflater.flush()
    with pytest.raises(CorruptBlockError, match="length"):
        decode(b"tgb\x02" + bomb)


def test_value_that_is_not_finite_is_absent():
    columns = {"a": array("d", [math.inf, -math.inf, 1.5])}
    stamps = array("q", [1, 2, 3])
    decoded = decode(encode(Block("s", stamps, stamps, columns))).columns["a"]
    assert bits(decoded) == bits([math.nan, math.nan, 1.5])


def test_later_version_is_named():
    """A block of a version to come is refused with its number."""
    data = bytearray(encode(Block("s", array("q", [1]), array("q", [2]), {})))
    data[3] = 9
    with pytest.raises(CorruptBlockError, match="version 9"):
        decode(bytes(data))


def test_written_block_can_be_read_for_ever():
    """Bytes that version 2 once wrote still mean what they meant."""
    block = decode(bytes.fromhex(WRITTEN_ONCE))
    assert block.source == "tegrastats"
    assert block.times_ns.tolist() == [1_000_000_000, 2_009_000_123, 3_018_000_000]
    assert block.wall_ns.tolist() == [stamp + 5 for stamp in block.times_ns]
    assert block.columns["rails.VDD_IN.instant_watts"].tolist() == [5.139, 5.179, 4.9]
    assert bits(block.columns["gpu.utilization_ratio"]) == bits([0.5, math.nan, 1 / 3])


def test_only_wanted_columns_are_unpacked():
    """Columns that nobody asked for are left out, the others are the same."""
    columns = {"a": array("d", [1.5]), "b": array("d", [2.5])}
    data = encode(Block("s", array("q", [1]), array("q", [2]), columns))
    assert decode(data, wanted=lambda name: name == "b").columns == {"b": array("d", [2.5])}


def test_columns_of_different_length_are_refused():
    columns = {"a": array("d", [1.0, 2.0])}
    with pytest.raises(ValueError, match="column"):
        encode(Block("s", array("q", [1]), array("q", [2]), columns))


def test_a_hundred_samples_of_a_board_are_small():
    """Sixty columns of which twenty change cost less than 40 bytes per sample."""
    times = array("q", range(0, 100 * 103_000_000, 103_000_000))
    columns = {f"still.{i}": array("d", [729e6]) * 100 for i in range(40)}
    for i in range(20):
        wander = [round(40 + math.sin(i + t * (i + 1)), 1) for t in range(100)]
        columns[f"moving.{i}"] = array("d", wander)
    data = encode(Block("tegrastats", times, times, columns))
    assert len(data) < 40 * 100
