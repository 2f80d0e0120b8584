"""The debug log of GStreamer: records of its tracers among anything else."""

import pytest

from tegrascope.parsers.gstreamer import NewElement, Push, TracerLine, read_line, read_record

# As GStreamer 1.22 of Debian 12 printed them.
NEW_ELEMENT = (
    "new-element, thread-id=(guint64)94271247514960, ts=(guint64)6536755, ix=(uint)1,"
    " parent-ix=(uint)4294967295, name=(string)nv, type=(string)GstIdentity, is-bin=(boolean)0;"
)
BUFFER = (
    "buffer, thread-id=(guint64)94271248022528, ts=(guint64)12335702, pad-ix=(uint)2,"
    " element-ix=(uint)1, peer-pad-ix=(uint)3, peer-element-ix=(uint)2, buffer-size=(uint)614400,"
    " have-buffer-pts=(boolean)1, buffer-pts=(guint64)33333333, have-buffer-dts=(boolean)0,"
    " buffer-dts=(guint64)18446744073709551615, have-buffer-duration=(boolean)1,"
    " buffer-duration=(guint64)33333333, buffer-flags=(GstBufferFlags)64;"
)
PLAIN = "0:00:00.012345678  1227 0x55bd3c387d50 TRACE             GST_TRACER :0:: "
COLOURED = (
    "0:00:00.012345678 \x1b[31m1227\x1b[00m 0x55bd3c387d50 \x1b[37mTRACE  \x1b[00m"
    " \x1b[00;34m          GST_TRACER :0::\x1b[00m "
)


@pytest.mark.parametrize("head", [PLAIN, COLOURED])
def test_records_are_read_with_and_without_colour(head):
    line = read_line(head + BUFFER)
    assert line == TracerLine(1227, 12_345_678, BUFFER)
    assert read_record(line.message) == Push(12_335_702, 1, 2, 33_333_333)
    assert read_record(read_line(head + NEW_ELEMENT).message) == NewElement(1, "nv", False)


def test_time_of_long_programs():
    line = read_line(f"102:03:04.{PLAIN[8:]}x".replace("04.012345678", "04.000000005"))
    assert line.printed_ns == (102 * 3600 + 3 * 60 + 4) * 10**9 + 5


def test_buffer_without_time_stamp():
    without = BUFFER.replace("pts=(boolean)1", "pts=(boolean)0")
    assert read_record(without).presentation_ns is None


@pytest.mark.parametrize(
    ("written", "name"),
    [(r'"my\ nn\ \"1\""', 'my nn "1"'), (r'"a\,b\;c"', "a,b;c"), ("primary-inference", None)],
)
def test_names_of_elements(written, name):
    record = read_record(NEW_ELEMENT.replace("(string)nv", f"(string){written}"))
    assert record.name == (name or written)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Setting pipeline to PLAYING ...",
        BUFFER,
        PLAIN.replace("GST_TRACER", "basesrc") + BUFFER,
        # An element that prints what looks like a record.
        f"{PLAIN.replace('GST_TRACER :0::', 'identity i.c:1:f:<nv>')} GST_TRACER :0:: {BUFFER}",
        f" {PLAIN}{BUFFER}",
    ],
)
def test_other_lines_are_no_lines_of_a_tracer(line):
    assert read_line(line) is None


@pytest.mark.parametrize(
    "message",
    [
        "buffer",
        BUFFER[:200],
        BUFFER.replace("ts=(guint64)12335702, ", ""),
        BUFFER.replace("(guint64)12335702", "(guint64)%lu"),
        BUFFER.replace("buffer, ", "event, ", 1),
        # The description of the record, which GStreamer prints first.
        r'buffer.class, thread-id=(structure)"scope\,\ type\=\(type\)guint64\;";',
        "new format string: buffer, thread-id=(guint64)%lu, ts=(guint64)%lu;",
        "update existing feature 0x55 (stats)",
        NEW_ELEMENT.replace("ix=(uint)1", "ix=(uint)"),
    ],
)
def test_other_and_torn_records_are_skipped(message):
    assert read_record(message) is None
