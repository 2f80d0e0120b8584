"""The words of a comparison: one text for the page, the report and the benchmark."""

import pytest

from tegrascope.daemon.measure.report import Figure
from tegrascope.daemon.measure.verdict_text import Verdict, conclusion_of, sentence_of


def verdict(goal, gpu, dla, answer=None, half=0.0):
    gap = Figure.around(gpu - dla, half)
    if answer is None:
        answer = "first" if gpu < dla else "second"
    better = {"first": "gpu", "second": "dla0"}.get(answer)
    return Verdict(
        goal=goal, answer=answer, better=better, runs=2, runs_needed=3,
        dla_value=dla, gpu_value=gpu, less_on_dla=gap,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (
            [("latency", 0.003, 0.017), ("energy", 0.063, 0.1134), ("gpu", 0.9, 0.01)],
            "On the DLA: 80 % more net energy, 5.7 times the time, frees 89.0 points of the GPU",
        ),
        ([("gpu", 0.1, 0.4)], "On the DLA: 30.0 points more GPU load"),
        ([("energy", -0.001, 0.02)], "On the DLA: more net energy"),
        (
            [("latency", 1.0, 2.0), ("energy", 1.0, 2.0, "not_sure")],
            "On the DLA: 2.0 times the time, net energy not known yet",
        ),
        (
            [("energy", 0.271, 0.166), ("gross_energy", 0.365, 0.383), ("latency", 1.0, 2.0)],
            "On the DLA: 39 % less net energy but 4.9 % more gross energy, 2.0 times the time",
        ),
        (
            [("energy", 3.0, 2.0), ("gross_energy", 4.0, 4.1, "no_difference")],
            "On the DLA: 33 % less net energy but no sure difference in gross energy",
        ),
        (
            [("energy", 3.0, 3.0, "no_difference"), ("gross_energy", 4.0, 5.0)],
            "On the DLA: 25 % more gross energy",
        ),
        ([("energy", 3.0, 2.0), ("gross_energy", 4.0, 3.0)], "On the DLA: 33 % less net energy"),
        (
            [("energy", 3.0, 2.0), ("gross_energy", 4.0, 5.0, "not_sure")],
            "On the DLA: 33 % less net energy",
        ),
        ([("latency", 1.0, 1.0, "no_difference")], "No difference between DLA and GPU is shown"),
        ([("latency", 1.0, 2.0, "too_few_runs")], None),
        ([], None),
    ],
)
def test_conclusion_names_only_what_is_decided(verdicts, words):
    assert conclusion_of([verdict(*one) for one in verdicts]) == words


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("too_few_runs", "2 of 3 runs on each device"),
        ("not_known", "not known yet: the runs differ too much from each other"),
        ("no_difference", "no difference shown: 1.00 s less to 3.00 s more on the DLA"),
        ("first", "1.00 s more on the DLA (1.00 s to 3.00 s)"),
    ],
)
def test_sentence_of_each_answer(answer, words):
    assert sentence_of(verdict("latency", 1.0, 2.0, answer, half=2.0)) == words


def test_interval_that_prints_as_one_value_is_a_share():
    words = sentence_of(verdict("latency", 1.0, 15.0, half=0.001))
    assert words == "14.0 s more on the DLA (± < 0.1 %)"


def test_unsure_difference_says_that_a_run_could_change_it():
    words = sentence_of(verdict("energy", 3.0, 1.0, "not_sure", half=0.5))
    assert words == (
        "not sure yet: 2.00 J less on the DLA (1.50 J to 2.50 J); one more run could change this"
    )
