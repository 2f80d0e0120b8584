"""The answers that a picture must show. A page that cannot answer its own question is not shown."""

from collections.abc import Mapping, Sequence
from typing import Any

# What a card of the status page compares; a goal without figures on one device has no verdict.
GOALS = ("latency", "energy", "gpu")
UNDECIDED = ("too_few_runs", "not_known", "not_sure")


class NoAnswerError(Exception):
    """A picture would show a question without its answer."""


def compared_models(workloads: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the models that a configuration measures on more than one device, sorted.

    >>> compared_models([{"model": "a", "device": "gpu"}, {"model": "a", "device": "dla0"}])
    ['a']
    """
    devices: dict[str, set[str]] = {}
    for workload in workloads:
        devices.setdefault(workload["model"], set()).add(workload["device"])
    return sorted(model for model in devices if len(devices[model]) > 1)


def missing_answers(models: Sequence[Mapping[str, Any]], compared: Sequence[str]) -> list[str]:
    """Return a sentence for each goal of a compared model that is not decided.

    Args:
        models: ``models`` of the daemon's ``/api/v1/models``.
        compared: The models that must have an answer.
    """
    answers: dict[tuple[str, str], str] = {}
    for model in models:
        for verdict in model["verdicts"]:
            answers[model["model"], verdict["goal"]] = verdict["answer"]
    missing = []
    for name in compared:
        for goal in GOALS:
            answer = answers.get((name, goal))
            if answer is None:
                missing.append(f"{name} has no verdict about {goal}")
            elif answer in UNDECIDED:
                missing.append(f"{name}: {goal} is {answer}")
    return missing


def goals_without_winner(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each goal of a benchmark that names no winner.

    Args:
        models: ``models`` of the benchmark's ``result.json``.
    """
    missing = []
    for model in models:
        if not model["goals"]:
            missing.append(f"{model['model']} is not compared")
        for goal in model["goals"]:
            if goal["winner"] is None:
                missing.append(f"{model['model']}: {goal['sentence']}")
    return missing
