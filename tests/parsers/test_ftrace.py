"""Lines of the DLA trace. Their forms are the driver's and the kernel's; no board printed these."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.parsers.dla import (
    Alive,
    Ended,
    Firmware,
    Lost,
    Submitted,
    TraceHello,
    parse_trace_line,
)
from tegrascope.parsers.errors import ParseError

SUBMIT = (
    "         trtexec-4711    [005] .....  1234.567891: job_submit: "
    "158c0000.nvdla1 class=f4 id=131073 fences=2 ts=38580246594"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (SUBMIT, Submitted(1_234_567_891_000, 131073, 1, 38580246594, "trtexec", 4711)),
        # Flags have four columns on 5.10 and 5.15, five later; a thread group may stand between.
        (
            "  a b-1 (  77) [000] d..1 7.000001: job_submit: 15880000.nvdla0 class=f3 id=0 "
            "fences=0 ts=0",
            Submitted(7_000_001_000, 0, 0, 0, "a b", 77),
        ),
        # A kernel that does not trust the pointer to the name prints none; the class is enough.
        (
            "x-1 [000] .... 7.000001: job_submit: (efault) class=f3 id=9 fences=0 ts=5",
            Submitted(7_000_001_000, 9, 0, 5, "x", 1),
        ),
        (
            "x-1 [000] .... 7.000001: job_submit: other class=aa id=9 fences=0 ts=5",
            Submitted(7_000_001_000, 9, None, 5, "x", 1),
        ),
        (
            "<idle>-0 [001] ..s1. 0.000000: job_timestamps: job_id=4294967295 begin=1 "
            "end=18446744073709551615",
            Ended(0, 4294967295, 1, 18446744073709551615),
        ),
        ("CPU:11 [LOST 12 EVENTS]", Lost(11, 12)),
        ("CPU:0 [LOST EVENTS]", Lost(0, None)),
        ("# tegrascope-dla hello cores=0,1", TraceHello((0, 1))),
        ("# tegrascope-dla hello cores=", TraceHello(())),
        ("# tegrascope-dla alive at=12.000000500", Alive(12_000_000_500)),
        (
            "# tegrascope-dla firmware core=1 percent=12.3456 at=12.5",
            Firmware(12_500_000_000, 1, 0.123456),
        ),
    ],
)
def test_line_is_read(line, expected):
    assert parse_trace_line(line) == expected


def test_the_name_of_a_program_cannot_pass_for_an_event():
    """A program chooses its name, which must not pass for an event or hide one."""
    named = SUBMIT.replace("trtexec", ": job_submit: ")
    assert parse_trace_line(named) == parse_trace_line(SUBMIT)._replace(thread=": job_submit: ")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("# tracer: nop", "noise"),
        ("job_timestamps", "noise"),
        (": job_timestamps: job_id=1 begin=1 end=2", "noise"),
        ("x-1 [0] .... 5.5: sched_switch: prev_comm=a", "event"),
        ("x-1 [0] .... 5.5: job_timestamps: job_id=-1 begin=1 end=2", "fields"),
        ("x-1 [0] .... 5.5: job_timestamps: job_id=1 begin=1", "fields"),
        ("x-1 [0] .... 5.5: job_submit: dev class=f3 id=1", "fields"),
        ("x-1 [0] .... 5.5: job_prefence: job_id=1 syncpt_id=2 threshold=3", "event"),
        ("# tegrascope-dla alive at=1.2.3", "noise"),
        ("# tegrascope-dla firmware core=0 percent=100.5 at=1.5", "fields"),
        ("# tegrascope-dla greetings", "fields"),
    ],
)
def test_other_lines_are_refused_with_a_reason(line, reason):
    """A line that is not understood gets one of a few kinds, so that it can be counted."""
    with pytest.raises(ParseError) as raised:
        parse_trace_line(line)
    assert raised.value.reason == reason


@given(st.text(max_size=200) | st.text(string.printable, max_size=60).map(SUBMIT.__add__))
def test_no_text_is_fatal(text):
    """Any text gives an event or a ParseError."""
    try:
        assert parse_trace_line(text) is not None
    except ParseError as error:
        assert error.reason in {"empty", "noise", "event", "fields"}
