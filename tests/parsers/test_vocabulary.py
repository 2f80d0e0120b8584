"""What the tokens of one line tell about another, and where they must not."""

import pytest

from tegrascope.parsers.tokenizer import cut_line, tokenize
from tegrascope.parsers.vocabulary import Vocabulary
from tests.bench.lines import LAYOUTS, generate

LINE = (
    "06-25-2025 09:43:17 RAM 936/3964MB (lfb 366x4MB) CPU [7%@729,off] EMC_FREQ 3%@2133 "
    "GR3D_FREQ 12%@[305,407] NVENC 79%@166 NVJPG off NVDLA0 45%@1369 VDE7 8 APE 174 "
    "soc0@47.5C cv0@-256C VDD_IN 5139mW/4890mW NC 0mW/0mW"
)


def words_of(line):
    """Return the words of a line."""
    return cut_line(line)[1]


def taught(*lines):
    """Return what is known when these lines were read."""
    vocabulary = Vocabulary()
    for line in lines:
        vocabulary.learn(tokenize(line))
    return vocabulary


def test_composed_is_as_learnt():
    """Of made lines most layouts are composed, and each is what reading word by word gives."""
    vocabulary, composed = Vocabulary(), 0
    lines = [line.text for line in generate(200 * len(LAYOUTS), seed=3)]
    for line in lines:
        found = vocabulary.compose(words_of(line))
        learnt = vocabulary.learn(tokenize(line))
        if found is not None:
            composed += 1
            assert found == learnt, line
    assert composed > 0.95 * len(lines)


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        LINE.replace("NVJPG off ", ""),
        LINE.replace("47.5C", "48C").replace("936/", "1000/"),
        LINE.replace("06-25-2025 09:43:17 ", ""),
        LINE.replace("VDD_IN 5139mW/4890mW NC 0mW/0mW", "NC 5mW/6mW NC 7mW/8mW"),
        "RAM 1/2MB (lfb 3x4MB) APE 5",
    ],
)
def test_tokens_stand_in_any_line(line):
    """Some of the tokens that were met, in another order of numbers or left out."""
    assert taught(LINE).compose(words_of(line)) == Vocabulary().learn(tokenize(line))


@pytest.mark.parametrize(
    "line",
    [
        f"{LINE} FOO",
        f"{LINE} NVDLA1 off",
        f"{LINE} NVJPG off",
        f"{LINE} RAM 1/2MB (lfb 3x4MB)",
        f"{LINE} NVENC 8%@1",
        f"{LINE} soc0@40C",
        f"{LINE} soc1@40C",
        f"{LINE} 06-25-2025 09:43:17",
        "RAM 1/2MB (lfb 3x4MB) 06-25-2025 09:43:17",
        LINE.replace("RAM 936/3964MB (lfb 366x4MB) ", ""),
        LINE.replace("06-25", "13-25"),
        LINE.replace("06-25", "6-25"),
        LINE.replace("[7%@729,off]", "[7%@729,5%]"),
        LINE.replace("(lfb 366x4MB)", "(lfb 4MB)"),
        "RAM 1/2MB (lfb 3x4MB) VDE7 8",
        "",
    ],
)
def test_what_has_to_be_read_as_a_whole(line):
    """Something new, something twice, no RAM, another record, or an end that may be cut."""
    assert taught(LINE).compose(words_of(line)) is None


def test_clusters_of_a_gpu_are_known_together():
    """The second says nothing behind another first one."""
    both = "RAM 1/2MB GR3D_FREQ 7%@305 GR3D2_FREQ 8%@407 APE 5"
    vocabulary = taught(both, "RAM 1/2MB GR3D_FREQ 7% APE 5")
    assert vocabulary.compose(words_of(both)) == Vocabulary().learn(tokenize(both))
    for line in (both.replace("7%@305", "7%"), both.replace("GR3D2", "GR3D0")):
        assert vocabulary.compose(words_of(line)) is None
