"""A line by itself, after other lines, and in a whole log: the same record each time."""

import gzip
import io
import json
import random
import re
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tegrascope import ParseError, Sample, frames
from tegrascope.parsers.tegrastats import render_line
from tegrascope.parsers.tegrastats.bulk import ColumnParser, read_batches
from tegrascope.parsers.tegrastats.line import LineParser, split_records
from tegrascope.parsers.tegrastats.prefix import read_prefix
from tegrascope.workbench.cli import main
from tests.bench.corpus import read_lines
from tests.bench.lines import LAYOUTS, generate, interleave
from tests.bench.truth import Row, faults, is_right, row_of, rows_of
from tests.parsers.test_laws import LINES, pieces, samples, soup

LAW = settings(derandomize=True, deadline=None, database=None, max_examples=150)
FEW = settings(LAW, max_examples=30)

# The lines of other programs around a record.
WRAPPED = [
    wrapped.replace("LINE", line)
    for line in LINES[:2]
    for wrapped in (
        '{"log":"LINE\\n","stream":"stdout","time":"2025-05-14T21:36:35.5Z"}',
        '{"MESSAGE":"LINE","__REALTIME_TIMESTAMP":"1747258595000000"}',
        'time="2025-05-14T21:36:35Z" content="LINE\\n"',
        "2025-05-14T21:36:35.5Z stdout F LINE",
        "May 14 21:36:35 robot7 sh[12]: LINE",
        "2025-05-14 21:36:35.5 LINE",
        "\ufeffLINE",
        "LINE LINE",
        "2025-05-14T21:36:35Z LINE2025-05-14T21:36:36Z LINE",
    )
]

MADE = generate(9 * len(LAYOUTS), seed=7)
POOL = [
    *LINES,
    *WRAPPED,
    *(line.text for line in MADE),
    "make: *** [all] Error 2",
    "",
    " \t ",
    "Sat 25 Jun 09:43:17 CEST 2025",
]

BASE = (
    "06-25-2025 09:43:17 RAM 936/3964MB (lfb 366x4MB) SWAP 45/15294MB (cached 1MB) "
    "CPU [7%@729,99%@2201,off,0%@806] EMC_FREQ 3%@2133 GR3D_FREQ 12%@[305,407] NVENC 79%@166 "
    "NVJPG off NVJPG1 off NVDLA0 45%@1369 NVDLA1 off PVA0_FREQ off APE 174 "
    "cpu@48.656C soc0@47C cv0@44.5C tj@47.531C VDD_IN 5139mW/4890mW VDD_SOC 1579mW/1580mW"
)
R39 = (
    "07-31-2026 14:58:05 RAM 4714/62878MB (lfb 7x4MB) CPU [78%@1728,off] GR3D_FREQ 0%@[0,0] "
    "NVENC0 off NVJPG0 off NVJPG1 off APE 174 cpu@50.718C/51C tj@49C/52.5C "
    "VDD_GPU_SOC 2265mW/2265mW/2301mW VIN_SYS_5V0 4722mW/4722mW/4722mW"
)
R32 = (
    "RAM 1762/3964MB (lfb 252x4MB) IRAM 0/252kB(lfb 252kB) CPU [37%@204,0%@204] EMC_FREQ 0% "
    "GR3D_FREQ 99%@921 MTS fg 3% bg 7% APE 25 PLL@25C PMIC@50C POM_5V_IN 5206/2702 SYS5V 20/179"
)
EARLY = (
    "10-16-2023 09:06:55 RAM 29959/30587MB (lfb 25x4MB) CPU [40%@1113,off] EMC_FREQ 16%@2133 "
    "GR3D_FREQ 67%@407 GR3D2_FREQ 67%@0 VIC_FREQ 729 NVDLA0_FREQ @1600 NVDLA1_LOAD 7% APE 174 "
    "CV0@-256C CPU@49.343C VDD_CPU_CV 794mW/580mW NC 0mW/0mW VDDQ 1912mW/1478mW NC 0mW/0mW"
)
OLD = (
    "RAM 1/2MB (lfb 3x4MB) cpu [1%,off,3%]@204 EMC 3%@40 GR3D 0%@72 EDP limit 1734 "
    "PVA0 [5%,6%]@704 VDE 115"
)

# What takes the place of a part of each line, `|` between; each is unlike it in one respect.
CHANGES = {
    BASE: {
        "06-25-2025": (
            "13-45-2025|02-29-2025|02-29-2024|06-25-0000|06-25-9999|6-25-2025|006-25-2025|"
            "06/25/2025|2025-06-25|06-25-202|0A-25-2025|06-25-20255|-6-25-2025|06--2-2025|"
            "00-25-2025|06-00-2025|06-25-+025"
        ),
        "09:43:17": (
            "24:00:00|23:59:60|09:60:17|9:43:17|09:43:170|09:43|09-43-17|09:43:17.5|09:43:1Z|"
            "00:00:00|09:43: 7||off|09:43:17Z"
        ),
        "RAM 936": (
            "RAM 3964|RAM 3965|IRAM 936|SWAP 936|RAM 0|RAM 0936|RAM 936.5|RAM -936|RAM|"
            "RAM 123456789|"
            "RAM 1234567890|ram 936|\x1b[KRAM 936|RAM 936 RAM 1|^CRAM 9"
        ),
        "3964MB": "3964kB|3964GB|3964mb|3964|3964M|3964 MB|3964MBx|MB",
        "SWAP 45": "SWAP 15294|SWAP 15295",
        "(lfb": "(cached|lfb|(lfb(|(LFB|",
        "366x4MB)": (
            "366x512kB)|4MB)|366X4MB)|366x4MB|x4MB)|366x)|0x0MB)|0366x04MB)|366x4MB))|"
            "1234567890x4MB)|366x4x4MB)"
        ),
        "(cached 1MB)": "(cached 3x4MB)|(cached 1kB)|(cached||(lfb 1MB)",
        "[7%@729": (
            "[007%@729|[100%@729|[101%@729|[07%@0729|[off|[OFF|[Off|[7%|[7%@|[%@729|[7@729|"
            "[7%@729@1|[|[7%@-1|[7%@7.5|[7.5%@729|[7%@1234567890|[7%@123456789|[7%@0|"
            "[7%@000000000|[7%@729,7%@729|7%@729"
        ),
        "0%@806]": "0%@806|0%@806]@5|0%@806]]|0%@806,]|off]|0%@806] ]",
        "off,": "off,off,|,|of,|0%,|offf,|oFF,",
        "CPU [": "cpu [|CPU  [|CPU[|CPU X [|CPUs [",
        "3%@2133": (
            "3%|0%|@2133|off|3%@[2133]|3%@0|103%@2133|3%@2133x|[3%]@2133|2133|3/2133|"
            "3%@213300000000|3%@2133mW"
        ),
        "12%@[305,407]": (
            "12%|@[305,407]|12%@305|12%@[305]|12%@[305,407,0]|@0|12%@[]|12%@[305,]|12%@[305|"
            "off|[12%,13%]@305|305|12%@[0305,00]|112%@[305,407]|"
            "12%@[305,407] GR3D2_FREQ 12%@[305,407]|12%@[1234567890]"
        ),
        "NVENC 79%@166": (
            "NVENC 79%|NVENC @166|NVENC 166|NVENC off|NVENC OFF|NVENC 79%@0|NVENC @0|NVENC 0|"
            "NVENC -1|NVENC 179%@166|NVENC [7%]@8|NVENC 5/6|NVENC 5mW|NVENC0 79%@166|"
            "NVENC1 79%@166|NVENC_FREQ 79%@166|NVENC_LOAD 79%|MSENC 79%@166|nvenc 79%@166|"
            "NVENC|NVENC 79%@166 NVENC off|NVENC_FREQ @166 NVENC_LOAD 7%|"
            "NVENC_LOAD 7% NVENC_FREQ @0|NVENC 79%@[1,2]"
        ),
        "NVJPG1": "NVJPG0|NVJPG|NVJPG2|NVJPG11|NVJPG01",
        "NVDLA0 45%@1369": (
            "NVDLA0 off|NVDLA0_FREQ @1369|NVDLA0_LOAD 45%|NVDLA0 100%@1|NVDLA0 101%@1|"
            "NVDLA0 1369|NVDLA0 @0|NVDLA1 45%@1369|NVDLA2 45%@1369|NVDLA 45%@1369|"
            "NVDLA10 45%@1369|NVDLA0 045%@01369|NVDLA0|NVDLA00 4%@1|"
            "NVDLA0 45%@1369 NVDLA0 45%@1369|NVDLA0_FREQ @1 NVDLA0_LOAD 7%|NVDLA0 4 5%@1"
        ),
        "NVDLA1 off": "NVDLA1 0ff|NVDLA1 0|NVDLA1||NVDLA1 offNVDLA1|NVDLA9 off",
        "PVA0_FREQ off": "PVA0_FREQ @704|PVA0 [5%,6%]@704|PVA0_FREQ 704|PVA0 [5%]",
        "APE 174": "APE|APE 0|APE 174%|APE 00174|APE 1234567890|APE 174.5|174",
        "48.656C": (
            "-256C|-256.0C|-0C|-0.5C|48C|48.C|.5C|48.65600C|1e3C|48.1234567C|+48C|48.656C/51C|"
            "48.656c|48.656|48.6.5C|1234567890C|048.656C|48,656C|C|0.0625C|48.123456C|"
            "123456789.123456C|-256.5C|--5C|-C|48.656CC|48.656C/|48.656C/C|48.656C/-256C|256C|"
            "-40.25C|9999C|-300C|200C|200.1C|-100C|-100.5C"
        ),
        "soc0@": (
            "soc1@|cpu@|soc@|0soc@|soc_0@|_soc@|@|soc0@soc0@|SOC0@|so\u0441@|on@|x_hertz@|a.b@|"
            "time@|log@"
        ),
        "tj@47.531C": "tj@47.531C tj@47.531C|tj@47.531Ctj@1C|tj @47.531C||tj@",
        "5139mW/4890mW": (
            "5139/4890|5139mW|5139mW/4890|05139mW/004890mW|5139|mW/mW|5139.5mW/1mW|"
            "5139mW/4890mW/1mW|1234567890mW/1mW|999999999mW/1mW|-5mW/1mW|5139kW/4890kW|"
            "-392mW/-392mW|-392mW/4890mW|5139mW/-1mW|-392mW|--5mW/1mW|-0mW/0mW|-mW/1mW|-5mW/-5mW/-5mW|"
            "-5mW/-|-5mW/1-|-392/-392|-5mW/-4|5-1mW/4890mW|"
            "5139mw/4890mw|5139mW/4890mW/1mW/1mW|5139mW/|/4890mW|5139mW/4890mWx|5139mW//4890mW|"
            "5139mW/off|0mW/0mW|5139mW/4890m"
        ),
        "VDD_SOC": "VDD_IN|NC|Soc|SOC|VDD_SOC2|CPU|RAM|VDD-SOC|GR3D_FREQ",
        "1579mW/1580mW": (
            "1579mW/158|1579mW/1580m|1579m|15|1579mW/1580mW/|1579mW/|1579mW/1580mW RAM 1/2MB|"
            "1579mW/1580mW 06-25-2025 09:43:18 RAM 1/2MB tj@1C|"
        ),
    },
    R39: {
        "50.718C/51C": "50.718C|50.718C/999C|-256C/51C|50.718C/-256C|50.718C/051C|50C/51.5C/52C",
        "49C/52.5C": "49C|49C/52.5|049.0C/52.500C|49C/1234567890C",
        "2265mW/2265mW/2301mW": "2265mW/2265mW|2265mW|2265mW/2265mW/2301|1/2/3|1mW/2/3",
        "4722mW/4722mW/4722mW": "4722mW/4722mW/47|4722mW/4722mW|4722mW/4722mW/4722mW/1mW|"
        "4722mW/4722mW/4722mW//mW|4722mW/4722mW/mW|4722mW/4722mW/1234567890mW",
        "NVJPG0": "NVJPG|NVJPG1",
    },
    R32: {
        "5206/2702": (
            "-5206/-2702|-5206/2702|5206/-2702|5206mW/2702mW|5206|5206/2702/1|05206/02702|"
            "5206/2702MB|5206/"
        ),
        "20/179": "20|20/|20/17|20/179/1/1|2O/179|SYS5V 20",
        "SYS5V": "sys5v|Sys5V|NC|APE|VDD_IN|POM_5V_IN",
        "252kB(lfb": "252MB(lfb|252kB (lfb|252kB|252(lfb",
        "MTS fg 3% bg 7%": (
            "MTS fg 3% bg|MTS fg 103% bg 7%|MTS bg 3% fg 7%|MTS 3% 7%|"
            "MTS fg 3% bg 7% MTS fg 1% bg 2%|MTS fg 3%@5 bg 7%|MTS_FG 3% MTS_BG 7%|"
            "MTS fg 003% bg 07%"
        ),
        "PMIC@50C": "PMIC@100C|PMIC@50C PMIC@51C|PLL@50C",
    },
    EARLY: {
        "GR3D2_FREQ 67%@0": (
            "VDE 5 GR3D2_FREQ 67%@0|GR3D2_FREQ 67%|GR3D2_FREQ @0|GR3D2_FREQ 67%@[0]|GR3D2_FREQ off|"
            "GR3D2_FREQ 67%@[0,1]|GR3D2_FREQ 167%@0|GR3D2_FREQ|GR3D2 6%@0 GR3D2 6%@0|"
        ),
        "GR3D_FREQ 67%@407": (
            "GR3D_FREQ 67%@[407]|GR3D_FREQ 67%|GR3D_FREQ|GR3D_FREQ @407|GR3D_FREQ 67%@[4,0]|"
            "GR3D_FREQ off|"
        ),
        "NVDLA0_FREQ @1600": (
            "NVDLA0_FREQ 1600|NVDLA1_FREQ @1600|NVDLA0_FREQ @0||NVDLA0_LOAD 7%|NVDLA0_FREQ off|"
            "NVDLA0_LOAD 7% NVDLA0_LOAD 8%"
        ),
        "NVDLA1_LOAD 7%": "NVDLA1_LOAD 7|NVDLA0_LOAD 7%|NVDLA1_FREQ @7|NVDLA1_LOAD off",
        "NC 0mW/0mW VDDQ": "NC 0mW/0 VDDQ|NC off VDDQ|NC VDDQ|VDDQ|NC 1/2 VDDQ",
        "CV0@-256C": "CV0@-255C|CV0@256C|CV0@-256.000C|CV0@-2560C|CV0@-256|CV1@-256C",
    },
    OLD: {
        "[1%,off,3%]@204": (
            "[1%,off,3%]|[1%@2,off,3%]@204|[1%,off,3%]204|[off]@204|[1%,off,3%]@|"
            "[1%,off,3%]@204@|[01%,OFF,003%]@0204|[1%@5,off,3%@6]"
        ),
        "limit 1734": "limit|limit off|limit 01734|Limit 1734|limit 1734 EDP limit 1",
        "[5%,6%]@704": "[5%,6%,7%]@704|[5%]@704|[5%,106%]@704|@704|off|[5%,6%]",
        "VDE 115": "VDE 1|NEW7 115|SYS5V 20|NEW7_FREQ 115|VDE 115%|VDE",
    },
}
VARIANTS = [
    (base, base.replace(old, new, 1))
    for base, changes in CHANGES.items()
    for old, news in changes.items()
    for new in news.split("|")
]


def result(line, parser, *, is_cut=False):
    """Read a line; a refusal is its reason and text."""
    try:
        return parser.parse(line, is_cut=is_cut)
    except ParseError as error:
        return error.reason, error.line, str(error)


@lru_cache(4096)
def alone(line, *, is_cut=False):
    """Read a line with a parser of its own."""
    return result(line, LineParser(), is_cut=is_cut)


@lru_cache(4096)
def all_alone(line, *, is_cut=False):
    """Read all records of a line, each with the time of its recorder; a refusal is its reason."""
    try:
        samples = LineParser().parse_all(line, is_cut=is_cut)
    except ParseError as error:
        return error.reason
    times = []
    pieces = split_records(line)
    for piece in pieces:
        is_cut_off = piece.is_cut or (is_cut and piece is pieces[-1])
        if isinstance(alone(piece.text, is_cut=is_cut_off), Sample):
            times.append(prefix_ns(piece.text))
    return tuple(zip(samples, times, strict=True))


def check(lines):
    """Compare lines read one after the other with each read as the first."""
    parser = LineParser()
    for line in lines:
        assert result(line, parser) == alone(line), line


class Truth(NamedTuple):
    """What the lines of a log contain, each read by itself."""

    rows: list[Row]
    received: list[int | None]
    lines: int
    skipped: Counter[str]
    words: int


def read_alone(log, number=0):
    """Read a log line by line."""
    rows, received, lines, skipped, words = [], [], 0, Counter(), 0
    for line, is_cut in read_lines(log):
        lines += 1
        samples = all_alone(line, is_cut=is_cut)
        if isinstance(samples, str):
            skipped[samples] += 1
            continue
        for sample, received_ns in samples:
            rows.append(row_of(sample, lines, number))
            received.append(received_ns)
            words += len(sample.unparsed)
    return Truth(rows, received, lines, skipped, words)


def check_files(texts, *, cores=1, zipped=False):
    """Hold the table of logs against their lines."""
    with tempfile.TemporaryDirectory() as folder:
        logs, rows, received = [], [], []
        for number, text in enumerate(texts):
            log = Path(folder) / f"{number}.log"
            log.write_bytes(gzip.compress(text) if zipped else text)
            logs.append(log)
            true = read_alone(log, number)
            rows += true.rows
            received += true.received
        frame = frames.read_log(logs, cores=cores)
        assert faults(frame, rows) == []
        times = frame["received"].dt.tz_convert(None).astype("datetime64[ns]")
        # A table has no column for a clock that counts from an unknown moment.
        since_1970 = [None if ns is None or ns < 10**17 else ns for ns in received]
        assert [None if time is pandas.NaT else time.value for time in times] == since_1970
        return frame.drop(columns="log")


class Dribble(io.BytesIO):
    """A log that comes in pieces of any size, as from a pipe."""

    def __init__(self, text, chance):
        super().__init__(text)
        self.chance = chance

    def read1(self, size=-1, /):
        """Give back a little, or all that was asked for."""
        return super().read1(self.chance.choice((1, 5, 60, 500, size)))


def check_batches(text, *, learn_after=1, block=1 << 20, dribble=None, parser=None):
    """Compare the columns of a log with its lines, whatever is learnt, and wherever it is cut."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.log"
        path.write_bytes(text)
        true = read_alone(path)
    log = io.BytesIO(text) if dribble is None else Dribble(text, dribble)
    parser = parser or ColumnParser(learn_after)
    batches = list(read_batches(log, parser, block_bytes=block))
    parts = [
        pandas.DataFrame(dict(zip(batch.names, batch.values, strict=True))).assign(
            line=batch.line,
            time=batch.printed_seconds.astype("datetime64[s]"),
            received=batch.received_ns,
            log="a.log",
        )
        for batch in batches
    ]
    if true.rows:
        frame = pandas.concat(parts, ignore_index=True)
        # A batch may have a column for a zone that none of its lines can read; a table may not.
        unread = [name for name in frame if frame[name].isna().all() and "celsius" in name]
        assert faults(frame.drop(columns=unread), true.rows, dtypes=False) == []
        missing = numpy.iinfo(numpy.int64).min
        assert frame["received"].tolist() == [missing if at is None else at for at in true.received]
    assert sum(batch.lines for batch in batches) == true.lines
    assert sum((batch.skipped for batch in batches), Counter()) == true.skipped
    assert sum(batch.unparsed_words for batch in batches) == true.words


def prefix_ns(line):
    """Return the nanoseconds of a recorder's prefix, to the digits that were written."""
    found = re.match(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)::", line)
    if found is not None and int(Decimal(found[1])) <= 9_000_000_000:
        return int(Decimal(found[1]) * 10**9)
    # Other forms, whose times test_prefix.py holds against what was written.
    return read_prefix(line).received_ns


NUMBERS = [
    *("0", "00", "007", "7", "99", "100", "0100", "101", "256", "999", "65536", "16777216"),
    *("123456789", "0123456789", "1234567890", "4294967296", "18446744073709551616", "9" * 40),
    *("-1", "1.5", "1.", ".5", "-256", "1e3", "0x1F", "1_000", "+5", "", "off", "\u0663", "\uff15"),
]
BLANKS = [
    "  ",
    "\t",
    "\x0b",
    "\x0c",
    "\r",
    "\x1c",
    "\x1f",
    "\x85",
    "\xa0",
    "\u2003",
    "",
    "\x00",
    "\ufeff",
]
WORDS = [
    *("off", "OFF", "Off", "0%", "101%", "@0", "5", "5mW", "5/6", "[", "]", "%", "@", "NC", "RAM"),
    *("NVDLA0", "NVDLA1", "CPU", "VDD_IN", "tj@45C", "tj@-256C", "1/2MB", "01-02-2003", "04:05:06"),
    *("GR3D2_FREQ", "MTS", "EDP", "limit", "IRAM", "(lfb", '"', "FUTURE_TOKEN", "1750866199.3::"),
]
PREFIXES = [
    *("1750866197.2428074::", "1750866197::", " 7::  ", "1.2.3::", "::", "1750866197.::", "-5::"),
    *("123456789012::", "1234567890123::", 'tegra="', "\x1b[0m$ ", "^C", "[sudo] password: "),
    *("2025-05-14T21:36:35.000000000Z ", "2025-05-14T21:36:35.5Z stdout F ", "1744360587.123: "),
    *("2025-05-14T21:36:35+0200 robot7 tegrastats[812]: ", "<34>1 2025-05-14T21:36:35Z h a - - - "),
    *("2025-05-14 21:36:35 ", "[2025-05-14 21:36:35.25] ", "May 14 21:36:35 ", "[  123.456789] "),
    *("[INFO] [1744360587.123456789] [node]: ", "tegra_1  | 2025-05-14T21:36:35Z ", "1744360587 "),
    *("2025-13-14T21:36:35Z ", "ts=2025-05-14T21:36:35Z msg=", "x7=1744360587.123:", "00:00:07 "),
    *("\ufeff", '{"log":"', "2025/05/14 21:36:35 7 "),
]
SWAPS = [
    *(("MB", "kB"), ("mW", ""), ("%", ""), ("@", ""), ("C", ""), ("0", "1"), ("_", ""), (".", "")),
    *(("off", "0"), ("/", "//"), ("]", ""), ("x", ""), (" off", ""), (",", ""), ("@", "@0")),
]
ENDS = [
    *("", " ", "\r", "  \r", '"', " RAM 1/2MB", "\x00", " 12", " VDD", " VDD_IN 12mW/1", "\x1b[K"),
    *('\\n"', " 06-25-2025 09:43:18 RAM 1/2MB tj@1C", " 1744360588: RAM 1/2MB"),
]


@st.composite
def garbled(draw):
    """A real-looking line with a few things done to it that leave it looking real."""
    chance = draw(st.randoms(use_true_random=False))
    line = chance.choice(POOL)
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        line = garble(line, chance)
    return line


@st.composite
def neighbours(draw):
    """Lines of one board, one of them as it should be, the others not quite."""
    chance = draw(st.randoms(use_true_random=False))
    origin = chance.choice([*CHANGES, *POOL])
    lines = [origin]
    for _ in range(draw(st.integers(1, 12))):
        lines.append(garble(chance.choice((origin, origin, lines[-1])), chance))
    return lines


def garble(line, chance):
    """Do one thing to a line."""
    words = line.split(" ")
    at = chance.randrange(len(words))
    what = chance.randrange(12)
    if what <= 3:
        runs = list(runs_of_digits(line))
        if runs:
            start, end = chance.choice(runs)
            return line[:start] + chance.choice(NUMBERS) + line[end:]
    elif what == 4:
        words[at] = chance.choice(WORDS)
    elif what == 5:
        del words[at]
    elif what == 6:
        words.insert(at, chance.choice([*WORDS, words[chance.randrange(len(words))]]))
    elif what == 7:
        other = chance.randrange(len(words))
        words[at], words[other] = words[other], words[at]
    elif what == 8:
        return chance.choice(PREFIXES) + line
    elif what == 9:
        return line[: chance.randrange(len(line) + 1)] + chance.choice(ENDS)
    elif what == 10:
        return " ".join(words[:at]) + chance.choice(BLANKS) + " ".join(words[at:])
    else:
        old, new = chance.choice(SWAPS)
        return line.replace(old, new, chance.choice((1, -1)))
    return " ".join(words)


def runs_of_digits(line):
    """Yield where runs of digits begin and end."""
    start = None
    for at, character in enumerate(line + " "):
        if character.isdigit():
            start = at if start is None else start
        elif start is not None:
            yield start, at
            start = None


# One line after another


@pytest.mark.parametrize("base", CHANGES, ids=["r36", "r39", "r32", "r35", "r24"])
def test_lines_that_are_nearly_equal(base):
    check([line for origin, other in VARIANTS if origin == base for line in (base, other)])


@given(st.lists(garbled() | soup, max_size=8) | neighbours())
@LAW
def test_damaged_lines_do_not_change_others(lines):
    check([*lines, *lines[::-1]])


@given(samples(), samples())
@FEW
def test_values_of_one_record_among_those_of_another(one, other):
    words, others = render_line(one).split(" "), render_line(other).split(" ")
    places = range(min(len(words), len(others)))
    check([" ".join([*words[:at], others[at], *words[at + 1 :]]) for at in places])


def test_more_tokens_and_values_than_are_remembered():
    parser = LineParser()
    for number in range(6000):
        tokens = f"R{number} {number}mW/5mW z{number}@{number % 99}.{number}C APE {number}"
        line = f"RAM {number}/6000MB {tokens}"
        assert parser.parse(line) == LineParser().parse(line)


def test_one_parser_in_many_threads():
    parser = LineParser()
    lines = [line for _, line in VARIANTS] * 3
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda line: result(line, parser), lines))
    assert found == [alone(line) for line in lines]


# Whole logs


@pytest.mark.parametrize("base", CHANGES, ids=["r36", "r39", "r32", "r35", "r24"])
def test_log_of_nearly_equal_lines(base):
    lines = [base] * 9
    for origin, line in VARIANTS:
        if origin == base:
            lines += [base, line, f"{line}\r", base, line, line, base]
    for order in (lines, lines[::-1]):
        text = "\n".join(order).encode("utf-8", "surrogatepass")
        for learn_after in (1, 8):
            check_batches(text, learn_after=learn_after, block=4096)
    check_files([text, text + b"\n"], cores=2)


def test_digits_in_other_places():
    chance = random.Random(17)
    for base in CHANGES:
        lines = [base]
        for _ in range(100):
            line = list(base)
            for _ in range(chance.choice((1, 1, 2, 3))):
                at = chance.choice([at for at, one in enumerate(line) if one in "0123456789."])
                moved = line.pop(at)
                line.insert(chance.choice((at - 1, at + 1, chance.randrange(len(line)))), moved)
            lines.append("".join(line))
        check(lines[:50])
        check_batches("\n".join(lines).encode())
        check_batches("\n".join([*lines, *lines[::-1]]).encode(), block=2000)


@given(samples())
@FEW
def test_any_record(sample):
    line = render_line(sample).encode()
    check_batches(b"\n".join([line] * 3))
    check_files([line])


@st.composite
def logs(draw):
    """The bytes of a log: lines of any kind, ends of any kind, and damage below the characters."""
    chance = draw(st.randoms(use_true_random=False))
    boards = chance.sample(POOL, chance.randint(1, 3))
    text = b""
    for _ in range(draw(st.integers(0, 40))):
        fate = chance.random()
        line = chance.choice(boards)
        if fate < 0.3:
            line = garble(line, chance)
        elif fate < 0.4:
            line = garble(chance.choice(POOL), chance)
        elif fate < 0.45:
            line = f"{chance.randrange(10**10)}.{chance.randrange(10**7)}::{line}"
        elif fate < 0.5:
            line = f"{line} {chance.choice(boards)}"
        made = line.encode("utf-8", "replace")
        if fate > 0.97 and made:
            cut = chance.randrange(len(made))
            made = made[:cut] + chance.choice((b"\xff", b"\xc3", b"\x00", b"\xe2\x82")) + made[cut:]
        text += made + chance.choice((b"\n", b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b" \n"))
    return text.removesuffix(b"\n") if draw(st.booleans()) else text


@given(
    logs(),
    st.sampled_from([1, 7, 300, 1000, 5000, 1 << 20]),
    st.sampled_from([1, 2, 8]),
    st.none() | st.randoms(use_true_random=False),
)
@LAW
def test_any_log(text, block, learn_after, dribble):
    check_batches(text, learn_after=learn_after, block=block, dribble=dribble)


@given(st.lists(neighbours(), min_size=1, max_size=3), st.sampled_from([1, 2, 8]))
@FEW
def test_other_logs_read_before_change_nothing(some, learn_after):
    parser = ColumnParser(learn_after)
    for lines in [*some, *some[::-1]]:
        check_batches("\n".join([*lines, *lines]).encode("utf-8", "replace"), parser=parser)


@given(st.lists(logs(), min_size=1, max_size=3), st.booleans())
@FEW
def test_several_logs(texts, zipped):
    whole = check_files(texts, zipped=zipped)
    apart = [check_files([text]) for text in texts]
    joined = pandas.concat([one for one in apart if len(one)] or apart[:1], ignore_index=True)
    pandas.testing.assert_frame_equal(whole, joined, check_like=True)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"\r\n\r\n",
        b"\n\n\n" + BASE.encode(),
        b"\x00" * 1000,
        b"noise\n" * 100,
        BASE.encode(),
        BASE.encode() + b"\r",
        BASE.encode() + b"\n\n",
        b"\xef\xbb\xbf" + BASE.encode(),
        b"x" * 200_000 + b"\n" + BASE.encode() + b"\n",
        BASE.encode() + b" x" * 100_000 + b"\n" + BASE.encode() + b"\n",
        b"x" * 70_000 + b"\n" + BASE.replace(" SWAP", "\r SWAP").encode() + b"\n",
        b"x" * 65_536 + b"\n" + b"y" * 65_535 + b"\n" + BASE.encode(),
        b" " * 70_000 + BASE.encode() + b"\n" + BASE.encode() + b"\n",
        b"RAM 1/2MB " + b"tj@40C " * 9000 + b"\n" + BASE.encode() + b"\n",
        b"RAM 1/2MB CPU [" + b",".join([b"5%@729"] * 3000) + b"]\n" + BASE.encode() + b"\n",
        b"RAM 1/2MB " + b" ".join(b"Z%d@%dC" % (n, n % 99) for n in range(700)) + b"\n",
        b"RAM 1/2MB " + b" ".join(b"R%d %dmW/1mW" % (n, n) for n in range(700)) + b"\n",
        b"\n".join(b"RAM 1/2MB Z%d@1C" % n for n in range(300)),
        b"\n".join(b"RAM %d/2MB" % 10**n for n in range(12)),
        b"\n".join(b"RAM 1/2MB tj@%.*fC" % (n, 47.5) for n in range(9)),
        b"\n".join([OLD.encode(), EARLY.encode(), R32.encode(), R39.encode(), BASE.encode()] * 50),
    ],
    ids=range(23),
)
def test_odd_logs(text):
    check_files([text])
    for block in (1, 1000, 1 << 20):
        if block > 1 or len(text) < 2000:
            check_batches(text, block=block)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("tail", ["EMC_FREQ 1", "VDD_SOC 1579mW/15", "tj", "", "tj@47.5C "])
def test_cut_log_reads_the_same_in_both_formats(tmp_path, capsys, zipped, tail):
    text = f"{R39}\n" * 2 + f"{R32}\n" * 3 + f"{BASE} {tail}"
    log, table = tmp_path / "cut.log", tmp_path / "cut.csv"
    # Stored blocks: all text is there, but not the end of the gzip file.
    log.write_bytes(gzip.compress(text.encode(), 0)[:-8] if zipped else text.encode())
    records = []
    for kind in ("jsonl", "csv"):
        assert main(["parse", "-f", kind, "-o", str(table), str(log)]) == int(zipped)
        records.append(table.read_text().splitlines())
    _, counts = capsys.readouterr()
    assert counts.count("6 lines: 6 records") == 2
    last = msgspec.json.decode(records[0][-1], type=Sample)
    certain, _, word = f"{BASE} {tail}".rpartition(" ")
    whole = LineParser().parse(certain)
    assert last == msgspec.structs.replace(whole, unparsed=(*whole.unparsed, *word.split()))
    frame = pandas.read_csv(table.with_name("cut.csv"))
    assert [len(records[0]), len(frame)] == [6, 6]
    assert frame["emc.frequency_hertz"].iloc[-1] == 2133 * 10**6
    check_batches(text.encode(), block=100)


@pytest.mark.parametrize("zipped", [False, True])
def test_parse_counts_the_same_in_both_formats(tmp_path, capsys, zipped):
    chance = random.Random(13)
    lines = [*POOL, *(line for _, line in VARIANTS), " ", "x" * 70_000, BASE + " x" * 40_000]
    lines += [garble(line, chance) for line in lines]
    chance.shuffle(lines)
    log, json_lines, table = (tmp_path / name for name in ("a.log", "a.jsonl", "a.parquet"))
    text = "\n".join(lines).encode("utf-8", "replace") + b"\n\xff\xfe\n"
    log.write_bytes(gzip.compress(text) if zipped else text)
    told = []
    for kind, output in (("jsonl", json_lines), ("parquet", table)):
        assert main(["parse", "-f", kind, "-o", str(output), str(log)]) == 0
        told.append(capsys.readouterr())
    assert told[0] == told[1]
    numbers = []
    for number, (line, is_cut) in enumerate(read_lines(log), 1):
        samples = all_alone(line, is_cut=is_cut)
        if not isinstance(samples, str):
            numbers += [number] * len(samples)
    dumped = json_lines.read_text(encoding="utf-8").splitlines()
    records = [msgspec.json.decode(line, type=Sample) for line in dumped]
    rows = [row_of(sample, number) for sample, number in zip(records, numbers, strict=True)]
    frame = pandas.read_parquet(table)
    assert len(frame) == len(rows)
    assert faults(frame.assign(log=str(log), line=numbers), rows, dtypes=False) == []


def test_generated_lines_are_right_on_both_paths(tmp_path):
    lines = generate(3000, seed=1)
    for order in (lines, interleave(lines)):
        log = tmp_path / "generated.log"
        log.write_text("".join(f"{line.text}\n" for line in order))
        parser = LineParser()
        assert all(is_right(parser.parse(line.text), line) for line in order)
        for cores in (1, 2):
            assert faults(frames.read_log([log], cores=cores), rows_of(order)) == []


def test_recorded_logs_read_the_same_on_both_paths(corpus):
    single = [
        json.loads(line)["line"]
        for line in (corpus / "lines.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    check(single + single[::-1])
    check_files(["\n".join(single).encode()])
    records = 0
    for log in sorted((corpus / "logs").rglob("*.log")):
        records += len(check_files([log.read_bytes()]))
        check_batches(log.read_bytes(), block=100_000)
    assert records == 12_870


@given(st.lists(pieces, max_size=30))
@LAW
def test_any_words(words):
    line = " ".join(["RAM 1/2MB", *words]).replace("\n", " ")
    check([line, line])
    check_batches(b"\n".join([line.encode("utf-8", "replace")] * 3))
