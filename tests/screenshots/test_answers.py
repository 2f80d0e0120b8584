"""Which answers are missing before a picture may be taken."""

import pytest

from tests.screenshots.answers import compared_models, goals_without_winner, missing_answers


def model(**answers):
    verdicts = [{"goal": goal, "answer": answer} for goal, answer in answers.items()]
    return {"model": "resnet50", "verdicts": verdicts}


def test_model_on_one_device_needs_no_answer():
    workloads = [
        {"model": "resnet50", "device": "gpu"},
        {"model": "resnet50", "device": "dla0"},
        {"model": "mobilenet", "device": "cpu"},
    ]
    assert compared_models(workloads) == ["resnet50"]


def test_decided_goals_are_complete():
    decided = model(latency="first", energy="no_difference", gpu="second")
    assert missing_answers([decided], ["resnet50"]) == []


@pytest.mark.parametrize("answer", ["too_few_runs", "not_known", "not_sure"])
def test_undecided_goal_is_named(answer):
    undecided = model(latency="first", energy=answer, gpu="second")
    assert missing_answers([undecided], ["resnet50"]) == [f"resnet50: energy is {answer}"]


def test_goal_without_figures_is_named():
    withheld = model(latency="first", gpu="second")
    assert missing_answers([withheld], ["resnet50"]) == ["resnet50 has no verdict about energy"]


def test_model_that_has_not_run_yet_lacks_all_goals():
    assert len(missing_answers([], ["resnet50"])) == 3


def test_goal_of_a_benchmark_without_winner_is_named():
    goals = [
        {"winner": "gpu", "sentence": "Latency: gpu wins"},
        {"winner": None, "sentence": "Energy: no difference"},
    ]
    missing = goals_without_winner([{"model": "resnet50", "goals": goals}])
    assert missing == ["resnet50: Energy: no difference"]


def test_benchmark_without_comparison_has_no_winner():
    assert goals_without_winner([{"model": "resnet50", "goals": []}]) == [
        "resnet50 is not compared"
    ]
