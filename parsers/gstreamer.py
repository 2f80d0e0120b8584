"""Records of GStreamer's tracer ``stats`` in the debug log of a program.

Source: the output of GStreamer 1.22 (Debian 12), and "GstTracer" in GStreamer's design documents.
"""

import re
from typing import NamedTuple

_ESCAPED = re.compile(r"\\(.)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Time since the start of GStreamer. Then follow process, thread, level and category.
_TIME = re.compile(r"([0-9]{1,9}):([0-9]{2}):([0-9]{2})\.([0-9]{9})", re.ASCII)
_PROCESS = re.compile("[0-9]{1,10}")
_THREAD = re.compile("0x[0-9a-f]{1,16}")
_LEVEL = re.compile("[A-Z]{1,16}")
# The place in GStreamer's own code: file:line:function.
_PLACE = re.compile(r"\S*?:[0-9]+:\S*")
# A name begins only where no name goes on, and a value without quotes has no "=". Without these two
# rules, a text of many names is read again from each of its places.
_FIELD = re.compile(r'(?<![\w-])([\w-]+)=\(\w+\)("(?:[^"\\]|\\.)*"|[^,;"=]*)[,;]', re.ASCII)


class TracerLine(NamedTuple):
    """A line of the category of tracers; ``printed_ns`` is since GStreamer's start there."""

    process: int
    printed_ns: int
    message: str


class NewElement(NamedTuple):
    """An element of a pipeline, with the number that other records have."""

    number: int
    name: str
    is_bin: bool


class Push(NamedTuple):
    """A buffer that goes from one element to the next.

    Attributes:
        at_ns: When, since GStreamer's start in its process.
        giver: Number of the element that it leaves.
        taker: Number of the element that it enters.
        presentation_ns: Its time stamp in the stream, or None without one.
    """

    at_ns: int
    giver: int
    taker: int
    presentation_ns: int | None


def read_line(line: str) -> TracerLine | None:
    """Return a line of a tracer, coloured or not; None for other lines.

    >>> read_line("0:00:01.000000002 71 0x5f TRACE  GST_TRACER :0:: buffer, ts=(guint64)9;")
    TracerLine(process=71, printed_ns=1000000002, message='buffer, ts=(guint64)9;')
    """
    if "GST_TRACER" not in line:
        return None
    plain = _COLOUR.sub("", line)
    words = plain.split(maxsplit=6)
    if len(words) < 7 or words[4] != "GST_TRACER" or plain[0].isspace():
        return None
    printed, process, thread, level, _, place, message = words
    time = _TIME.fullmatch(printed)
    forms = ((_PROCESS, process), (_THREAD, thread), (_LEVEL, level), (_PLACE, place))
    if time is None or not all(form.fullmatch(word) for form, word in forms):
        return None
    hours, minutes, seconds, fraction = map(int, time.groups())
    whole = (hours * 60 + minutes) * 60 + seconds
    return TracerLine(int(process), whole * 1_000_000_000 + fraction, message)


def read_record(message: str) -> NewElement | Push | None:
    r"""Return what a tracer reports; None for records of other kinds, and for a torn one.

    >>> read_record("new-element, ix=(uint)3, name=(string)\"my\\ nn\", is-bin=(boolean)0;")
    NewElement(number=3, name='my nn', is_bin=False)
    """
    kind = message.partition(",")[0]
    if kind not in ("new-element", "buffer"):
        return None
    fields = dict(_FIELD.findall(message))
    try:
        if kind == "new-element":
            name = fields["name"]
            if name.startswith('"'):
                name = _ESCAPED.sub(r"\1", name[1:-1])
            return NewElement(int(fields["ix"]), name, fields["is-bin"] == "1")
        presentation_ns = None
        if fields["have-buffer-pts"] == "1":
            presentation_ns = int(fields["buffer-pts"])
        giver, taker = int(fields["element-ix"]), int(fields["peer-element-ix"])
        return Push(int(fields["ts"]), giver, taker, presentation_ns)
    except (KeyError, ValueError):
        return None
