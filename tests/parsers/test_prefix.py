"""Times that recorders put before a line are read, whatever recorder it was."""

from datetime import datetime, timezone

import pytest

from tegrascope import ParseError
from tegrascope.parsers.tegrastats import parse_line, parse_records
from tegrascope.parsers.tegrastats.line import split_records
from tegrascope.parsers.tegrastats.prefix import read_prefix

RECORD = "RAM 936/3964MB (lfb 366x4MB) CPU [7%@729] tj@47.531C VDD_IN 5139mW/4890mW"
AT = datetime(2025, 5, 14, 21, 36, 35, tzinfo=timezone.utc)
AT_NS = int(AT.timestamp()) * 10**9

UNIX = [
    ("docker logs --timestamps", "2025-05-14T21:36:35.123456789Z ", 123_456_789, ()),
    ("CRI", "2025-05-14T23:36:35.123456789+02:00 stdout F ", 123_456_789, ("stdout", "F")),
    (
        "journalctl -o short-iso",
        "2025-05-14T23:36:35+0200 robot7 tegrastats[812]: ",
        0,
        ("robot7", "tegrastats[812]:"),
    ),
    (
        "journalctl -o short-iso-precise",
        "2025-05-14T21:36:35.123456+0000 robot sh[1]: ",
        123_456_000,
        ("robot", "sh[1]:"),
    ),
    (
        "journalctl -o short-unix",
        f"{AT_NS // 10**9}.123456 robot sh[1]: ",
        123_456_000,
        ("robot", "sh[1]:"),
    ),
    (
        "RFC 5424",
        "<34>1 2025-05-14T21:36:35.003Z robot app 812 - - ",
        3_000_000,
        ("<34>1", "robot", "app", "812", "-", "-"),
    ),
    ("ts %.s", f"{AT_NS // 10**9}.250000 ", 250_000_000, ()),
    ("ts %s", f"{AT_NS // 10**9} ", 0, ()),
    ("ts '%F %T %z'", "2025-05-14 19:36:35 -0200 ", 0, ()),
    (
        "ROS 2",
        f"[INFO] [{AT_NS // 10**9}.123456789] [board]: ",
        123_456_789,
        ("[INFO]", "[board]:"),
    ),
    ("ROS 1", f"[ INFO] [{AT_NS // 10**9}.500000000]: ", 500_000_000, ("[", "INFO]")),
    ("bare epoch", f"{AT_NS // 10**9}.123: ", 123_000_000, ()),
    ("recorder", f"{AT_NS // 10**9}.123::", 123_000_000, ()),
    ("docker compose", "tegra_1  | 2025-05-14T21:36:35Z ", 0, ("tegra_1", "|")),
]


@pytest.mark.parametrize(("prefix", "fraction_ns", "left"), [row[1:] for row in UNIX])
def test_time_of_a_recorder_is_read(prefix, fraction_ns, left):
    """Its time is exact, the record is the same, and only words of the recorder are left over."""
    found = read_prefix(prefix + RECORD)
    assert (found.kind, found.ns) == ("unix", AT_NS + fraction_ns)
    sample = parse_line(prefix + RECORD)
    assert sample.received == AT.replace(microsecond=fraction_ns // 1000)
    assert sample.rails == parse_line(RECORD).rails
    assert (sample.time, sample.unparsed) == (None, left)


@pytest.mark.parametrize(
    "prefix",
    ["2025-05-14 21:36:35 ", "[2025-05-14 21:36:35] ", "2025-05-14 21:36:35,123 INFO ",
     "2025/05/14 21:36:35 ", "2025-05-14T21:36:35.5 "],
)  # fmt: skip
def test_time_without_a_zone_is_local_time(prefix):
    """It is no moment by itself, so it stands where tegrastats' own local time would stand."""
    sample = parse_line(prefix + RECORD)
    assert (sample.received, sample.time) == (None, AT.replace(tzinfo=None))
    own = parse_line(f"{prefix}05-14-2025 21:36:36 {RECORD}")
    assert own.time == datetime(2025, 5, 14, 21, 36, 36)


@pytest.mark.parametrize(
    ("first", "second", "seconds"),
    [
        ("May 14 21:36:35 robot sh[1]: ", "May 14 21:36:37 robot sh[1]: ", 2),
        ("Feb 28 23:59:59 ", "Mar  1 00:00:00 ", 86_401),
        ("[  123.456789] ", "[ 1123.456789] ", 1000),
        ("12.5::", "13.5::", 1),
    ],
)
def test_clock_with_an_unknown_origin_gives_only_differences(first, second, seconds):
    """Without a year, or since boot, no time since 1970 is known."""
    times = [read_prefix(prefix + RECORD) for prefix in (first, second)]
    assert [time.kind for time in times] == ["elapsed"] * 2
    assert times[1].ns - times[0].ns == seconds * 10**9
    assert parse_line(first + RECORD).received is None


@pytest.mark.parametrize(
    "prefix",
    ["00:00:07 ", "2025-13-14T21:36:35Z ", "2025-05-14T25:36:35Z ", "Jun 31 21:36:35 ",
     "id1744360587.123 ", "174436058 ", "9999999999 ", f"{'9' * 400}::", "robot7: "],
)  # fmt: skip
def test_what_is_not_certainly_a_time_is_left_over(prefix):
    """A time of day alone may count from the start or from the line before."""
    sample = parse_line(prefix + RECORD)
    assert (sample.time, sample.received) == (None, None)
    assert sample.unparsed[: len(prefix.split())] == tuple(prefix.split())


@pytest.mark.parametrize(
    "line", [RECORD, f"05-14-2025 21:36:35 {RECORD}", "RAM 1::2", "", "{", "["]
)
def test_line_without_a_recorder_is_kept_whole(line):
    assert read_prefix(line) == (None, 0, line, 0)


def test_time_behind_the_record_is_none_of_its_own():
    assert parse_line(f"> {RECORD} 2025-05-14T21:36:35Z").received is None


@pytest.mark.parametrize(
    "line",
    [
        '{"log":"%s\\n","stream":"stdout","time":"2025-05-14T21:36:35.000000000Z"}',
        '{"MESSAGE":"%s","__REALTIME_TIMESTAMP":"1747258595000000","_PID":"812"}',
        '{"ts":1747258595000,"level":"info","msg":"%s"}',
        '{"message":"2025-05-14T21:36:35Z %s","time":"2025-05-14T21:36:40Z"}',
        '\ufeff{"log":"%s\\r\\n","time":"2025-05-14T21:36:35Z"}',
    ],
)
def test_record_inside_a_json_object(line):
    """Docker, the journal and collectors of logs write such lines."""
    sample = parse_line(line % RECORD)
    assert (sample.received, sample.unparsed) == (AT, ())
    assert sample.rails == parse_line(RECORD).rails


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ('time="2025-05-14T21:36:35Z" content="%s\\n"', ("time=", '"', '"', "content=", '"', '"')),
        ('["%s\\n",', ("[", '"', '"', ",")),
        ("b'%s\\n'", ("b'RAM"[:2], "'")),
        ('{"log":"%s\\n","stream', ("{", '"', "log", '"', ":", '"', '"', ",", '"', "stream")),
    ],
)
def test_newline_inside_a_string_ends_the_last_value(line, left):
    """It stands there as two characters, which are no part of the last rail."""
    sample = parse_line(line % RECORD)
    assert sample.rails["VDD_IN"].instant_watts == 5.139
    assert sample.unparsed == left


@pytest.mark.parametrize("depth", [10, 50_000])
def test_deep_json_is_noise(depth):
    with pytest.raises(ParseError):
        parse_line('{"a":' * depth)


def test_mark_of_an_editor_hides_no_time():
    sample = parse_line(f"\ufeff05-14-2025 21:36:35 {RECORD}")
    assert (sample.time, sample.unparsed) == (datetime(2025, 5, 14, 21, 36, 35), ())


SECOND = RECORD.replace("5139mW", "7000mW")


@pytest.mark.parametrize("between", [" ", "\\n", "  \t", " $ "])
def test_each_record_of_a_line_is_a_record(between):
    samples = parse_records(f"{RECORD}{between}{SECOND}")
    assert [sample.rails["VDD_IN"].instant_watts for sample in samples] == [5.139, 7.0]


def test_each_record_of_a_line_has_its_own_time():
    printed = f"05-14-2025 21:36:35 {RECORD} 05-14-2025 21:36:36 {SECOND}"
    assert [sample.time.second for sample in parse_records(printed)] == [35, 36]
    received = f"2025-05-14T21:36:35Z {RECORD} 2025-05-14T21:36:36Z stdout F {SECOND}"
    assert [sample.received.second for sample in parse_records(received)] == [35, 36]
    both = [piece.text for piece in split_records(f'{{"log":"{RECORD}\\n{SECOND}"}}')]
    assert both == [f"{RECORD}\n", SECOND]


def test_record_that_was_cut_by_the_next_loses_its_last_word():
    """``VDD_IN 5139mW/48`` may be the beginning of a longer number."""
    line = f"{RECORD[:-4]}05-14-2025 21:36:36 {SECOND}"
    first, second = parse_records(line)
    assert (first.rails, first.unparsed[-1]) == ({}, "5139mW/48")
    assert second.rails["VDD_IN"].instant_watts == 7.0


def test_line_has_no_more_records_than_it_has_room_for():
    assert len(parse_records("RAM 1/2MB " * 6000)) == 512
