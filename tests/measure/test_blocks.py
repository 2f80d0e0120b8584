import math
import struct
import zlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.daemon.measure.blocks import DICTIONARY, Block, CorruptBlockError, decode, encode

INSTANTS = st.integers(-(2**62), 2**62 - 1)
NAMES = st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"]))
PRINTED = st.one_of(
    st.integers(0, 10**6).map(lambda n: n / 1000),
    st.integers(0, 2**20).map(lambda n: n * 1048576.0),
    st.just(math.nan),
)

DICTIONARY_CRC = 0xC4CE4853
WRITTEN_ONCE = (
    "74676201274cf0dc0000008163e7b2e561e164172a494d2f4a04963525c52859114f3d80d5a38c0d"
    "2baeed64ff76e914c76b6656260618f860cfc8b82c20602d8b102b4328023e30b5670000"
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


@given(st.one_of(blocks(st.floats()), blocks(PRINTED)))
def test_every_bit_comes_back(block):
    """Whatever float64 is in a block, and whatever its names are, it is the same once decoded."""
    assert_same(decode(encode(block)), block)


@given(blocks(PRINTED), st.integers(1, 200))
def test_damage_is_told(block, place):
    """A block that was cut short or changed is an error that says so, never other numbers."""
    data = encode(block)
    with pytest.raises(CorruptBlockError):
        decode(data[: -min(place, len(data))])
    at = place % len(data)
    changed = data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]
    with pytest.raises(CorruptBlockError):
        decode(changed)


@given(st.binary(max_size=60))
def test_no_bytes_are_a_surprise(data):
    """Any bytes are a block or a CorruptBlockError, which is a ValueError."""
    with pytest.raises(ValueError, match="block"):
        decode(data)


def test_checksum_alone_does_not_make_a_block():
    """Bytes with the right frame around nonsense are refused too."""
    nonsense = zlib.compressobj(6, zlib.DEFLATED, -15)
    packed = nonsense.compress(b"\x05\x01\x01") + nonsense.flush()
    frame = struct.pack(">3sBII", b"tgb", 1, zlib.crc32(packed), 3)
    with pytest.raises(CorruptBlockError):
        decode(frame + packed)


def test_later_version_is_named():
    """A block of a version to come is refused with its number."""
    data = bytearray(encode(Block("s", array("q", [1]), array("q", [2]), {})))
    data[3] = 9
    with pytest.raises(CorruptBlockError, match="version 9"):
        decode(bytes(data))


def test_first_version_can_be_read_for_ever():
    """Bytes that version 1 once wrote still mean what they meant; its dictionary is frozen."""
    assert zlib.crc32(DICTIONARY) == DICTIONARY_CRC
    written = bytes.fromhex(WRITTEN_ONCE)
    block = decode(written)
    assert block.source == "tegrastats"
    assert block.times_ns.tolist() == [1_000_000_000, 2_009_000_123, 3_018_000_000]
    assert block.wall_ns.tolist() == [t + 5 for t in block.times_ns]
    assert block.columns["cpu.0.online"].tolist() == [1, 1, 1]
    assert block.columns["rails.VDD_IN.instant_watts"].tolist() == [5.139, 5.179, 4.9]
    assert bits(block.columns["gpu.utilization_ratio"]) == bits([0.5, math.nan, 1 / 3])


def test_only_wanted_columns_are_unpacked():
    """Columns that nobody asked for are left out, the others are the same."""
    columns = {"a": array("d", [1.5]), "b": array("d", [2.5])}
    data = encode(Block("s", array("q", [1]), array("q", [2]), columns))
    assert decode(data, wanted=lambda name: name == "b").columns == {"b": array("d", [2.5])}


@pytest.mark.parametrize(
    "columns", [{"a": array("d", [1.0, 2.0])}, {"a\nb": array("d", [1.0])}], ids=["long", "name"]
)
def test_what_could_not_come_back_is_refused(columns):
    """A block whose columns differ in length, or whose names cannot be told apart, is refused."""
    with pytest.raises(ValueError, match="column"):
        encode(Block("s", array("q", [1]), array("q", [2]), columns))


def test_a_hundred_samples_of_a_board_are_small():
    """Sixty columns of which twenty change cost less than 40 bytes a sample."""
    times = array("q", range(0, 100 * 103_000_000, 103_000_000))
    columns = {f"still.{i}": array("d", [729e6]) * 100 for i in range(40)}
    for i in range(20):
        wander = [round(40 + math.sin(i + t * (i + 1)), 1) for t in range(100)]
        columns[f"moving.{i}"] = array("d", wander)
    data = encode(Block("tegrastats", times, times, columns))
    assert len(data) < 40 * 100
