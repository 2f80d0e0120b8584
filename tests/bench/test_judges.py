"""What ``make bench`` judges by is itself held against lines, and against known faults."""

import random
import re
from collections import Counter
from itertools import pairwise

import numpy
import pandas
import pytest

from tegrascope import parse_line

from . import floors
from .lines import DLA_SHARE, LAYOUTS, generate, interleave, redraw, variety
from .rounds import Contender, LeftOutError, play, ratio
from .truth import dtype_of, faults, is_right, rows_of


@pytest.fixture(scope="module")
def lines():
    """Some lines of every layout."""
    return generate(1800, seed=2)


def numbers_in(text):
    """Count the numbers of a line that are not part of a name; knows nothing of the format."""
    apart = re.sub(r"(?<=\d)x(?=\d)", " ", text)
    return Counter(map(float, re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", apart)))


def test_each_seed_makes_its_own_lines(lines):
    """The same seed makes the same lines; the order in which they stand makes no other ones."""
    assert generate(1800, seed=2) == lines != generate(1800, seed=3)
    assert Counter(line.text for line in interleave(lines)) == Counter(line.text for line in lines)


def test_lines_drawn_anew_are_read_in_full(lines):
    """Values that share nothing with the line before are values that a board may print."""
    chance = random.Random(0)
    for line in lines:
        text = redraw(line.text, chance)
        assert text != line.text
        assert parse_line(text).unparsed == ()


def test_lines_are_of_all_layouts(lines):
    """At least seven layouts, each with its share; a DLA core is at work in 40 % of the lines."""
    count = Counter(line.layout for line in lines)
    assert set(count) == {layout.name for layout in LAYOUTS}
    assert len(count) >= 7
    assert max(count.values()) - min(count.values()) <= 1
    assert all(line.dla == bool(re.search(r"NVDLA\d\S* \S*@[1-9]", line.text)) for line in lines)
    many = generate(20_000, seed=4)
    assert sum(line.dla for line in many) / len(many) == pytest.approx(DLA_SHARE, abs=0.01)


def test_truth_is_what_was_printed(lines):
    """Each number of a line is in its truth, in base units; nothing else but states is."""
    for line in lines:
        said = Counter()
        for path, value in zip(line.paths, line.values, strict=True):
            scale = 1.0
            if path.endswith((".on", ".online")):
                continue
            if "cluster_utilization_ratio.0" in path:
                # Printed once, named twice.
                continue
            if path.endswith("_bytes"):
                scale = 1024.0 if "free_block" in path and value < 2**20 else 2.0**20
            elif "_hertz" in path:
                scale = 1e6
            elif "_ratio" in path:
                scale = 0.01
            elif path.endswith("_watts"):
                scale = 0.001
            said[float(round(value / scale, 3))] += 1
        said.update(float(part) for part in re.findall(r"\d+", f"{line.time:%m %d %Y %H %M %S}"))
        said[-256.0] += len(line.gated)
        clock, rest = line.text[:19], line.text[19:].replace("NC 0mW/0mW", "")
        printed = numbers_in(re.sub(r"[-:]", " ", clock)) + numbers_in(rest)
        assert +said == printed, line.text


def test_lines_repeat_themselves_no_more_than_recorded_ones():
    """Shares of unlike tokens are as in the largest log of an AGX Orin that is known, or above."""
    many = generate(18_000, seed=5)
    shares: dict[str, list[float]] = {}
    for layout in LAYOUTS:
        texts = [line.text for line in many if line.layout == layout.name]
        for kind, share in variety(texts).items():
            shares.setdefault(kind, []).append(share)
    means = {kind: sum(some) / len(some) for kind, some in shares.items()}
    recorded = {"cores": 0.15, "rails": 0.6, "zones": 0.04, "RAM": 0.15, "GR3D": 0.05, "EMC": 0.01}
    assert {kind: mean for kind, mean in means.items() if mean < recorded[kind]} == {}


@pytest.mark.parametrize("pattern", [floors.WHOLE_LINE, floors.EVERY_NUMBER])
def test_floors_read_every_line(lines, pattern):
    """The expressions match each line, and each number is in one of their groups."""
    for line in lines:
        found = pattern.fullmatch(line.text)
        assert found, line.text
        values = [
            word.rpartition("@")[2] if word[0].isalpha() else word
            for word in line.text.replace("NC 0mW/0mW", "").split()
            if not word.isidentifier()
        ]
        groups = [group for group in found.groups() if group is not None]
        assert digits_in(groups) == digits_in(values)


def digits_in(texts):
    """Return all runs of digits, in order."""
    return re.findall(r"\d+", " ".join(texts))


def test_contenders_give_back_what_they_understood(lines):
    """Each floor sees all lines."""
    texts = [line.text for line in lines]
    for floor in (floors.split, floors.whole_line, floors.every_number, floors.ten_searches):
        assert floor(texts) == len(texts)
        assert floor([*texts[:5], ""]) == 5


def frame_of(lines):
    """Make the table that is right for lines, by the slowest way there is."""
    columns = {}
    for at, line in enumerate(lines):
        for path, value in zip(line.paths, line.values, strict=True):
            columns.setdefault(path, [None] * len(lines))[at] = value
    frame = pandas.DataFrame(
        {
            "log": "a.log",
            "line": range(1, len(lines) + 1),
            "time": numpy.array([line.time for line in lines], "datetime64[s]"),
        }
    )
    typed = {path: pandas.array(cells, dtype="Float64") for path, cells in columns.items()}
    return frame.assign(
        **{
            path: cells.astype(dtype_of(path))
            if dtype_of(path) != "float64"
            else cells.to_numpy("float64", na_value=numpy.nan)
            for path, cells in typed.items()
        }
    )


def test_faults_are_found(lines):
    """A right table has none; each way to be wrong is told."""
    rows = rows_of(lines)
    right = frame_of(lines)
    assert faults(right, rows) == []
    assert "rows" in faults(right[1:], rows)[0]
    for name in ("rails.VDD_IN.average_watts", "cpu.0.frequency_hertz", "dla.0.on", "line"):
        wrong = right.copy()
        at = wrong[name].first_valid_index()
        wrong.loc[at, name] = wrong.loc[at, name] * 2 + 1 if name != "dla.0.on" else pandas.NA
        assert f"{name}[{at}]" in faults(wrong, rows)[0]
    gap = right["rails.VDD_IN.average_watts"].isna().idxmax()
    wrong = right.copy()
    wrong.loc[gap, "rails.VDD_IN.average_watts"] = 0.0
    assert "is 0.0, not nan" in faults(wrong, rows)[0]
    wrong = right.copy()
    wrong.loc[3, "time"] = pandas.NaT
    assert "time[3]" in faults(wrong, rows)[0]
    assert "missing" in faults(right.drop(columns="ram.used_bytes"), rows)[0]
    assert "not asked for" in faults(right.assign(more=1.0), rows)[0]
    assert "float64, not Int64" in faults(right.astype({"ram.used_bytes": "float64"}), rows)[0]


def test_a_wrong_sample_is_found(lines):
    """A sample is right for its own line only."""
    assert all(is_right(parse_line(line.text), line) for line in lines[:50])
    assert not any(is_right(parse_line(line.text), other) for line, other in pairwise(lines[:50]))
    assert not is_right(parse_line(f"{lines[0].text} more"), lines[0])


def test_dtypes_follow_the_unit():
    """The unit decides, but a zone may have any name."""
    assert dtype_of("gpu.frequency_hertz.0") == dtype_of("ram.used_bytes") == "Int64"
    assert dtype_of("cpu.0.online") == dtype_of("dla.0.on") == "boolean"
    assert (
        dtype_of("temperatures_celsius.on") == dtype_of("rails.x_hertz.instant_watts") == "float64"
    )


def test_rounds_compare_each_with_itself():
    """One that is twice as slow comes out at half; one that leaves lines out is not timed."""
    fast, slow = Contender("fast", lambda: 5, 5, 5), Contender("slow", lambda: 5, 5, 5)
    play([fast, slow], 2)
    assert len(fast.cpu) == len(slow.wall) == 2
    fast.cpu, slow.cpu = [1.0, 2.0, 4.0], [2.0, 4.0, 4.0]
    compared = ratio(slow, fast)
    assert (compared.middle, compared.least, compared.most) == (0.5, 0.5, 1.0)
    with pytest.raises(LeftOutError, match="lazy: 4 lines, not 5"):
        play([Contender("lazy", lambda: 4, 5, 5)], 1)
