"""The table of peaks: each number follows from the words of its source."""

import re

import pytest

from tegrascope.parsers.peaks import find_peak, peak_table

TABLE = peak_table()
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# Sparse int8 TOPs of the GPU of an AGX Orin 64GB by power mode, README.md of
# github.com/NVIDIA/Deep-Learning-Accelerator-SW; the clocks in MHz are those of words.agx64_modes.
README = (("MAXN", 1301, 171), ("50W", 816, 109), ("30W", 612, 41))


def numbers_in(text):
    """Return the numbers of a text; one in GHz is also one in MHz."""
    found = {float(number.replace(",", "")) for number in NUMBER.findall(text)}
    return found | {float(number) * 1000 for number in re.findall(r"([\d.]+) GHz", text)}


@pytest.mark.parametrize("peak", TABLE.peak, ids=lambda peak: " ".join(map(str, peak.words)))
def test_each_number_follows_from_the_words_of_its_source(peak):
    said = set()
    for key in peak.words:
        said |= numbers_in(TABLE.words[key].text)
    used = numbers_in(peak.derived)
    if " / 2 " in f"{peak.derived} ":
        assert "2x NVDLA" in TABLE.words[peak.words[0]].text
        used -= {2.0}
    assert used <= said
    assert re.fullmatch(r"[\d. */()+-]+", peak.derived)
    unit = 1e9 if peak.on == "memory" else 1e12
    assert peak.per_second == pytest.approx(eval(peak.derived) * unit, rel=1e-5)
    assert peak.hertz / 1e6 in said


@pytest.mark.parametrize("peak", TABLE.peak, ids=lambda peak: " ".join(map(str, peak.words)))
def test_dense_peak_says_so_wherever_the_source_counts_sparse(peak):
    """A number of sparse operations is halved, by words that state both."""
    sparse = any("parse" in TABLE.words[key].text for key in peak.words)
    if sparse and peak.precision in ("int8", "fp16"):
        dense_of_sparse = re.search(r"50 / 100|35 / 70|20 / 40", peak.derived)
        assert dense_of_sparse or "Dense" in TABLE.words[peak.words[0]].text


def test_each_source_is_named_with_its_address_and_used():
    used = {TABLE.words[key].source for peak in TABLE.peak for key in peak.words}
    assert used == set(TABLE.sources)
    assert all(source.address.startswith("https://") for source in TABLE.sources.values())
    assert {key for peak in TABLE.peak for key in peak.words} == set(TABLE.words)
    assert {peak.module for peak in TABLE.peak} == set(TABLE.parts.values())


def test_rows_are_told_apart_by_what_they_are_looked_up_by():
    keys = [(peak.module, peak.on, peak.precision, peak.mode) for peak in TABLE.peak]
    assert len(set(keys)) == len(keys)
    for peak in TABLE.peak:
        assert (peak.on == "memory") == (peak.precision is None)


@pytest.mark.parametrize(("mode", "megahertz", "sparse"), README)
def test_scaled_peak_is_that_of_a_second_source(mode, megahertz, sparse):
    power_mode = mode if mode == "MAXN" else f"MODE_{mode}"
    peak = find_peak("p3701-0005", power_mode, "gpu", "int8")
    assert 2 * peak.at(megahertz * 1e6) / 1e12 == pytest.approx(sparse, rel=0.03)


def test_dla_of_two_modules_is_the_same_at_the_same_clock():
    other = find_peak("p3701-0004", None, "dla", "int8")
    assert find_peak("p3701-0005", None, "dla", "int8").at(other.hertz) == pytest.approx(
        other.per_second, rel=0.01
    )


def test_super_mode_is_the_same_peak_at_a_higher_clock():
    """The data sheets state both modes; their numbers are rounded."""
    nx, nano = "p3767-0000", "p3767-0005"
    assert find_peak(nx, None, "gpu", "fp32").at(1173e6) == pytest.approx(2.40e12, rel=0.01)
    assert 2 * find_peak(nx, None, "dla", "int8").at(1229e6) == pytest.approx(40e12, rel=0.01)
    assert find_peak(nano, None, "gpu", "int8").at(1020e6) == pytest.approx(33e12, rel=0.02)
    assert find_peak(nano, None, "memory").at(3199e6) == pytest.approx(102e9, rel=0.01)


def test_absent_row_is_no_number():
    assert find_peak("p3701-0005", None, "dla", "fp16") is None
    assert find_peak("p3834-0008", None, "gpu", "int8") is None
    assert find_peak(None, None, "memory") is None


def test_unknown_clock_counts_as_the_highest():
    peak = find_peak("p3701-0005", None, "memory")
    assert peak.at(None) == 204.8e9
    assert peak.at(1.6e9) == pytest.approx(102.4e9)
