"""Three ways to read a line, and nobody can tell by the answer which one it was."""

import copy
import gzip
import io
import json
import pickle
import random
import re
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import numpy
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tegrascope
from tegrascope import frames
from tegrascope.collectors.lines.log_file import read_lines
from tegrascope.daemon.cli import main
from tegrascope.parsers import tegrastats
from tegrascope.parsers.columns import ColumnParser, read_batches
from tegrascope.parsers.errors import ParseError
from tegrascope.parsers.records import Record, Sample
from tegrascope.parsers.render import render_line
from tegrascope.parsers.tegrastats import LineParser
from tegrascope.parsers.tokenizer import read_line
from tests.bench.lines import LAYOUTS, generate, interleave
from tests.bench.truth import Row, alike, faults, is_right, row_of, rows_of
from tests.parsers.test_tegrastats_laws import LINES, pieces, samples, soup

LAW = settings(derandomize=True, deadline=None, database=None, max_examples=150)
FEW = settings(LAW, max_examples=30)

MADE = generate(9 * len(LAYOUTS), seed=7)
POOL = [
    *LINES,
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
            "IRAM 936|SWAP 936|RAM 0|RAM 0936|RAM 936.5|RAM -936|RAM|RAM 123456789|"
            "RAM 1234567890|ram 936|\x1b[KRAM 936|RAM 936 RAM 1|^CRAM 9"
        ),
        "3964MB": "3964kB|3964GB|3964mb|3964|3964M|3964 MB|3964MBx|MB",
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
            "-40.25C"
        ),
        "soc0@": (
            "soc1@|cpu@|soc@|0soc@|soc_0@|_soc@|@|soc0@soc0@|SOC0@|so\u0441@|on@|x_hertz@|a.b@|"
            "time@|log@"
        ),
        "tj@47.531C": "tj@47.531C tj@47.531C|tj@47.531Ctj@1C|tj @47.531C||tj@",
        "5139mW/4890mW": (
            "5139/4890|5139mW|5139mW/4890|05139mW/004890mW|5139|mW/mW|5139.5mW/1mW|"
            "5139mW/4890mW/1mW|1234567890mW/1mW|999999999mW/1mW|-5mW/1mW|5139kW/4890kW|"
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
        "50.718C/51C": "50.718C|-256C/51C|50.718C/-256C|50.718C/051C|50C/51.5C/52C",
        "49C/52.5C": "49C|49C/52.5|049.0C/52.500C|49C/1234567890C",
        "2265mW/2265mW/2301mW": "2265mW/2265mW|2265mW|2265mW/2265mW/2301|1/2/3|1mW/2/3",
        "4722mW/4722mW/4722mW": "4722mW/4722mW/47|4722mW/4722mW|4722mW/4722mW/4722mW/1mW|"
        "4722mW/4722mW/4722mW//mW|4722mW/4722mW/mW|4722mW/4722mW/1234567890mW",
        "NVJPG0": "NVJPG|NVJPG1",
    },
    R32: {
        "5206/2702": "5206mW/2702mW|5206|5206/2702/1|05206/02702|5206/2702MB|5206/",
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


def test_every_change_finds_its_place():
    """A change that changes nothing would prove nothing."""
    assert [pair for pair in VARIANTS if pair[0] == pair[1]] == []


def told(read, line, *, keep_line=False):
    """Read a line; a refusal is told as its reason and line."""
    try:
        return read(line, keep_line=keep_line)
    except ParseError as error:
        return error.reason, error.line, str(error)


def check(line, read=tegrascope.parse_line, *, keep_line=False):
    """Hold the live path against the general one; give back what both said."""
    live = told(read, line, keep_line=keep_line)
    general = told(read_line, line, keep_line=keep_line)
    if isinstance(general, Sample) and isinstance(live, Sample):
        assert alike(live, general), line
    else:
        assert live == general, line
    return live


class Told(NamedTuple):
    """What the general path says of a log."""

    rows: list[Row]
    received: list[int | None]
    lines: int
    skipped: Counter[str]
    words: int


def tell(log, number=0):
    """Read a log line by line by the general path."""
    rows, received, lines, skipped, words = [], [], 0, Counter(), 0
    for line in read_lines(log):
        lines += 1
        try:
            sample = read_line(line)
        except ParseError as error:
            skipped[error.reason] += 1
            continue
        rows.append(row_of(sample, lines, number))
        received.append(prefix_ns(line))
        words += len(sample.unparsed)
    return Told(rows, received, lines, skipped, words)


def check_files(texts, *, cores=1, zipped=False):
    """Hold the table of logs against their lines, one by one by the general path."""
    with tempfile.TemporaryDirectory() as folder:
        logs, rows, received = [], [], []
        for number, text in enumerate(texts):
            log = Path(folder) / f"{number}.log"
            log.write_bytes(gzip.compress(text) if zipped else text)
            logs.append(log)
            true = tell(log, number)
            rows += true.rows
            received += true.received
        frame = frames.read_log(logs, cores=cores)
        assert faults(frame, rows) == []
        times = frame["received"].dt.tz_convert(None).astype("datetime64[ns]")
        assert [None if time is pandas.NaT else time.value for time in times] == received
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
    """Hold the columns of a log against its lines, whatever is learnt, and wherever it is cut."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.log"
        path.write_bytes(text)
        true = tell(path)
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
    """Return the nanoseconds of an epoch prefix, to the digits that were written."""
    found = re.match(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)::", line)
    if found is None or int(Decimal(found[1])) > 9_000_000_000:
        return None
    return int(Decimal(found[1]) * 10**9)


# Lines that are nearly right

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
]
SWAPS = [
    *(("MB", "kB"), ("mW", ""), ("%", ""), ("@", ""), ("C", ""), ("0", "1"), ("_", ""), (".", "")),
    *(("off", "0"), ("/", "//"), ("]", ""), ("x", ""), (" off", ""), (",", ""), ("@", "@0")),
]
ENDS = ["", " ", "\r", "  \r", '"', " RAM 1/2MB", "\x00", " 12", " VDD", " VDD_IN 12mW/1", "\x1b[K"]


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


# The live path


@pytest.mark.parametrize("base", CHANGES, ids=["r36", "r39", "r32", "r35", "r24"])
def test_nearly_a_known_layout(base):
    """A line that differs from the one before in one respect is read for what it is."""
    for origin, line in VARIANTS:
        if origin == base:
            parser = LineParser()
            for shown in (base, line, base, line, f"{line} ", line, base):
                check(shown, parser.parse)


@pytest.mark.parametrize(
    "line",
    [
        *(BASE, R39, R32, EARLY),
        "RAM 1/2MB NVDLA1 off NVDLA0 7%@1369",
        "RAM 1/2MB",
        "RAM 1/2MB (lfb 3x4MB) tj@1C FOO cpu@2C APE 1 soc@3C VDD_IN 1mW/2mW NC 1mW/2mW VDD 3mW",
    ],
)
def test_a_layout_is_learnt_from_its_first_line(line, monkeypatch):
    """The next line of a layout is not left to the general path, whatever numbers it holds."""
    parser = LineParser()
    parser.parse(line)
    monkeypatch.delattr(tegrastats, "tokenize")
    check(line, parser.parse)
    check(line.replace("RAM ", "RAM 1").replace("mW", "1mW"), parser.parse)


@given(garbled() | soup)
@LAW
def test_live_is_general(line):
    """Whatever the line, both say the same, in every respect."""
    check(line)
    check(line, keep_line=True)


@given(samples())
@LAW
def test_live_is_general_for_any_record(sample):
    """Every record that can be printed is read back, when new and when its layout is known."""
    line = render_line(sample)
    parser = LineParser()
    for _ in range(3):
        assert check(line, parser.parse) == sample


@given(samples(), samples())
@FEW
def test_values_of_one_record_in_the_layout_of_another(one, other):
    """The words of two lines, mixed place by place, are read as if for the first time."""
    parser = LineParser()
    first, second = render_line(one).split(" "), render_line(other).split(" ")
    lines = [" ".join(first), " ".join(second)]
    for at in range(min(len(first), len(second))):
        lines.append(" ".join([*first[:at], second[at], *first[at + 1 :]]))
    for line in [*lines, *lines[::-1]]:
        check(line, parser.parse)


@given(neighbours())
@LAW
def test_what_was_learnt_of_a_damaged_line_does_no_harm(lines):
    """Each line is a new one to a parser that has read it and its like before."""
    parser = LineParser()
    for line in [*lines, *lines[::-1], *lines]:
        check(line, parser.parse)


@given(
    neighbours() | st.lists(garbled(), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(1, 3),
)
@LAW
def test_memory_of_other_lines_does_no_harm(lines, most_values, most_layouts):
    """A parser that has seen anything, and forgot most of it, reads as a new one does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tegrastats, "MOST_LAYOUTS", most_layouts)
        parser = LineParser(most_values)
        for line in [*lines, *lines[::-1], *lines]:
            check(line, parser.parse, keep_line=len(line) % 2 == 0)


def test_many_layouts_and_values():
    """Ten thousand lines in any order, more of everything than is remembered."""
    parser, chance = LineParser(50), random.Random(3)
    lines = [line.text for line in interleave(generate(900, seed=3), seed=3)]
    for number in range(4000):
        line = chance.choice(lines)
        check(garble(line, chance) if number % 3 == 0 else line, parser.parse)


def test_one_parser_in_many_threads():
    """Threads that push one another's values out of a small memory get their own records."""
    lines = [line.text for line in generate(450, seed=5)]
    true = {line: read_line(line) for line in lines}
    parser = LineParser(4)

    def run(seed):
        order = random.Random(seed).sample(lines, len(lines))
        return all(alike(parser.parse(line), true[line]) for line in order)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(16)))


def records_in(value):
    """Yield every record in a value, itself too."""
    if isinstance(value, Record):
        yield value
        value = dict(value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from records_in(one)


@pytest.mark.parametrize("line", [*CHANGES, *LINES])
def test_a_live_record_is_a_record(line):
    """Copied, pickled, dumped, hashed or written to, it does what a validated one does."""
    parser = LineParser()
    parser.parse(line)
    live, general = parser.parse(line), read_line(line)
    for one in (
        copy.copy(live),
        copy.deepcopy(live),
        pickle.loads(pickle.dumps(live)),
        live.model_copy(deep=True),
        Sample.model_validate(live),
        Sample.model_validate(live.model_dump(exclude_unset=True)),
        Sample.model_validate_json(live.model_dump_json(exclude_unset=True)),
        Sample(**dict(live)).model_copy(),
    ):
        assert one == live == general
        assert repr(one) == repr(general)
    assert live.model_dump() == general.model_dump()
    assert live.model_dump(exclude_unset=True) == general.model_dump(exclude_unset=True)
    assert live.model_dump_json(exclude_defaults=True) == general.model_dump_json(
        exclude_defaults=True
    )
    assert json.loads(live.model_dump_json()) == general.model_dump(mode="json")
    assert list(vars(live)) == list(vars(general))
    for mine, theirs in zip(records_in(live), records_in(general), strict=True):
        assert type(mine) is type(theirs)
        assert mine == theirs
        assert mine.model_fields_set == theirs.model_fields_set
        assert mine.model_extra == theirs.model_extra
        assert hashed(mine) == hashed(theirs)
        assert pickle.loads(pickle.dumps(mine)) == theirs
        field = next(iter(type(mine).model_fields))
        with pytest.raises(ValueError, match="frozen"):
            setattr(mine, field, None)
        with pytest.raises(ValueError, match="frozen"):
            delattr(mine, field)


def hashed(record):
    """Return the hash of a record, or that it has none."""
    try:
        return hash(record)
    except TypeError:
        return "unhashable"


@pytest.mark.parametrize("line", CHANGES)
def test_no_two_records_share_what_can_be_changed(line):
    """A mapping that somebody empties is theirs alone."""
    parser = LineParser()
    for _ in range(3):
        sample = check(line, parser.parse)
        for field in ("engines", "temperatures_celsius", "temperatures_max_celsius", "rails"):
            getattr(sample, field).clear()


@pytest.mark.parametrize("length", [65_535, 65_536, 65_537])
def test_length_is_bounded_on_both_paths(length):
    """The longest line that is read is the same, whether its layout is known or not."""
    line = BASE + " " * (length - len(BASE))
    parser = LineParser()
    parser.parse(BASE)
    check(line, parser.parse)
    check(BASE + " x" * ((length - len(BASE)) // 2), parser.parse)


# The bulk path


@pytest.mark.parametrize("base", CHANGES, ids=["r36", "r39", "r32", "r35", "r24"])
def test_bulk_of_nearly_one_layout(base):
    """Among lines of a layout, those that differ are read for what they are, learnt or not."""
    parser = ColumnParser(1)
    everything = [base] * 9
    for origin, line in VARIANTS:
        if origin == base:
            few = [base, line, f"{line}\r", base, line, line, base]
            text = "\n".join(few).encode("utf-8", "surrogatepass") + b"\n"
            check_batches(text)
            check_batches(text.replace(base.encode() + b"\n", b""), parser=parser)
            check_batches(text, parser=parser)
            everything += few
    text = "\n".join(everything).encode("utf-8", "surrogatepass")
    for learn_after in (1, 3, 8):
        check_batches(text, learn_after=learn_after, block=4096)
    check_files([text])
    check_files([text, text + b"\n"], cores=2)


def test_digits_that_wander():
    """Lines that are the same without digits and points, which stand elsewhere in them."""
    chance = random.Random(17)
    for base in CHANGES:
        lines = [base]
        for _ in range(400):
            line = list(base)
            for _ in range(chance.choice((1, 1, 2, 3))):
                at = chance.choice([at for at, one in enumerate(line) if one in "0123456789."])
                moved = line.pop(at)
                line.insert(chance.choice((at - 1, at + 1, chance.randrange(len(line)))), moved)
            lines.append("".join(line))
        for line in lines[:100]:
            check(line)
        check_batches("\n".join(lines).encode())
        check_batches("\n".join([*lines, *lines[::-1]]).encode(), block=2000)


def test_every_number_has_its_place():
    """Each digit of a line changed by itself changes one number, or makes it another line."""
    chance = random.Random(19)
    for base in CHANGES:
        lines = [base] * 8
        for at, one in enumerate(base):
            if one.isdigit():
                for put in chance.sample("0123456789.", 4):
                    lines.append(base[:at] + put + base[at + 1 :])
                lines += [base[:at] + base[at + 1 :], base[:at] + "0" + base[at:]]
                lines.append(f"{base[:at]}{10 ** chance.randrange(12)}{base[at + 1 :]}")
        check_batches("\n".join(lines).encode())
        chance.shuffle(lines)
        check_batches("\n".join(lines).encode(), learn_after=3, block=5000)


@given(samples())
@FEW
def test_bulk_is_general_for_any_record(sample):
    """Every record that can be printed has its row."""
    line = render_line(sample).encode()
    check_batches(b"\n".join([line] * 3))
    check_files([line])


@given(st.lists(samples(), min_size=2, max_size=3))
@FEW
def test_bulk_of_numbers_in_another_layout(some):
    """The words of several lines, mixed place by place, are read for what they are."""
    lines = [render_line(sample).split(" ") for sample in some]
    mixed = [" ".join(words) for words in lines]
    for at in range(min(map(len, lines))):
        mixed.append(" ".join([*lines[0][:at], lines[-1][at], *lines[0][at + 1 :]]))
    check_batches("\n".join(mixed * 2).encode())


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
def test_bulk_is_general(text, block, learn_after, dribble):
    """Whatever a log holds and wherever it is cut, each cell is what the general path says."""
    check_batches(text, learn_after=learn_after, block=block, dribble=dribble)


@given(st.lists(neighbours(), min_size=1, max_size=3), st.sampled_from([1, 2, 8]))
@LAW
def test_what_was_learnt_of_other_logs_does_no_harm(some, learn_after):
    """A reader that has read other logs of nearly the same lines reads as a new one does."""
    parser = ColumnParser(learn_after)
    for lines in [*some, *some[::-1]]:
        check_batches("\n".join([*lines, *lines]).encode("utf-8", "replace"), parser=parser)


@given(st.lists(logs(), min_size=1, max_size=3), st.booleans())
@FEW
def test_bulk_of_several_logs(texts, zipped):
    """Plain or gzip, one after the other, each with its own line numbers."""
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
        BASE.encode("utf-16"),
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
    ids=range(24),
)
def test_odd_logs(text):
    """Empty, damaged, endless and changing logs are read as their lines are."""
    check_files([text])
    for block in (1, 1000, 1 << 20):
        if block > 1 or len(text) < 2000:
            check_batches(text, block=block)


def test_all_in_one_log():
    """Every line that is known, in any order, among garbled ones."""
    chance = random.Random(11)
    lines = [*POOL, *(line for _, line in VARIANTS)] * 2
    chance.shuffle(lines)
    text = "\n".join(
        garble(line, chance) if chance.random() < 0.2 else line for line in lines
    ).encode("utf-8", "replace")
    check_files([text, text])
    check_batches(text, block=50_000)


@pytest.mark.parametrize("zipped", [False, True])
def test_parse_tells_the_same_of_both_formats(tmp_path, capsys, zipped):
    """Lines, records and refusals by reason are counted alike; Parquet holds the same numbers."""
    chance = random.Random(13)
    lines = [*POOL, *(line for _, line in VARIANTS), " ", "x" * 70_000, BASE + " x" * 40_000]
    lines += [garble(line, chance) for line in lines]
    chance.shuffle(lines)
    log, json_lines, table = (tmp_path / name for name in ("a.log", "a.jsonl", "a.parquet"))
    text = "\n".join(lines).encode("utf-8", "replace") + b"\n\xff\xfe\n"
    log.write_bytes(gzip.compress(text) if zipped else text)
    told_of = []
    for kind, output in (("jsonl", json_lines), ("parquet", table)):
        assert main(["parse", "-f", kind, "-o", str(output), str(log)]) == 0
        told_of.append(capsys.readouterr())
    assert told_of[0] == told_of[1]
    numbers = [number for number, line in enumerate(read_lines(log), 1) if is_record(line)]
    dumped = json_lines.read_text(encoding="utf-8").splitlines()
    records = [Sample.model_validate_json(line) for line in dumped]
    rows = [row_of(sample, number) for sample, number in zip(records, numbers, strict=True)]
    frame = pandas.read_parquet(table)
    assert len(frame) == len(rows)
    assert faults(frame.assign(log=str(log), line=numbers), rows, dtypes=False) == []


def is_record(line):
    """Tell whether the general path makes anything of a line."""
    return isinstance(told(read_line, line), Sample)


# Both, where the truth is known


def test_generated_lines_are_right_on_every_path(tmp_path):
    """What the generator printed is what is read: in order of boards, and interleaved."""
    lines = generate(3000, seed=1)
    for order in (lines, interleave(lines)):
        log = tmp_path / "generated.log"
        log.write_text("".join(f"{line.text}\n" for line in order))
        assert all(is_right(read_line(line.text), line) for line in order[::7])
        assert all(is_right(tegrascope.parse_line(line.text), line) for line in order)
        for cores in (1, 2):
            assert faults(frames.read_log([log], cores=cores), rows_of(order)) == []


def test_corpus_reads_the_same_on_every_path(corpus):
    """Every recorded log: each record alike live and in general, each cell right in bulk."""
    single = [
        json.loads(line)["line"]
        for line in (corpus / "lines.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    for line in single + single[::-1]:
        check(line)
    check_files(["\n".join(single).encode()])
    count = 0
    for log in sorted((corpus / "logs").rglob("*.log")):
        for line in read_lines(log):
            count += isinstance(check(line), Sample)
        check_files([log.read_bytes()])
        check_batches(log.read_bytes(), block=100_000)
    assert count == 12_870


@given(st.lists(pieces, max_size=30))
@LAW
def test_any_words_in_bulk_and_live(words):
    """Any pieces of the format, in any order: live, and as a log that repeats them."""
    line = " ".join(["RAM 1/2MB", *words]).replace("\n", " ")
    check(line)
    check_batches(b"\n".join([line.encode("utf-8", "replace")] * 3))
