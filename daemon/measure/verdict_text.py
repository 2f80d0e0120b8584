"""The text of a comparison of DLA and GPU: a sentence per goal, and what they say together.

The status page, the report and the page of a benchmark all print these words.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from ...parsers.records import Record
from .report import Figure
from .run_text import digits, ends_of, joules, points, seconds
from .winner import Judgement

EnergyKind = Literal["net", "gross"]
GoalOfRuns = Literal["energy", "gross_energy", "latency", "gpu"]
_TIMES = 2.0


class _Words(NamedTuple):
    noun: str
    show: Callable[[float], str]


# In the order of the conclusion.
_WORDS: dict[GoalOfRuns, _Words] = {
    "energy": _Words("energy", joules),
    "gross_energy": _Words("gross energy", joules),
    "latency": _Words("time", seconds),
    "gpu": _Words("GPU load", points),
}


class Verdict(Record):
    """One goal of one model: the best DLA core against the GPU.

    Attributes:
        better: The device with the lower figure, if that is sure.
        dla: Name of the workload; ``gpu`` likewise.
        dla_value: Mean in seconds, in joules per inference, or as load of the GPU.
        less_on_dla: ``gpu_value`` less ``dla_value``, with its interval.
        energy: Kind of energy that the goal ``energy`` compares: gross if net energy is unknown.
    """

    goal: GoalOfRuns
    answer: str
    better: str | None
    runs: int = 0
    runs_needed: int = 0
    dla: str = ""
    gpu: str = ""
    dla_value: float
    gpu_value: float
    less_on_dla: Figure
    energy: EnergyKind = "net"


def lower_device(judgement: Judgement, gpu: str, dla: str) -> str | None:
    """Return which of the two devices has the lower figure, the GPU being the first; or None."""
    return {"first": gpu, "second": dla}.get(judgement.answer)


def noun_of(goal: GoalOfRuns, energy: EnergyKind) -> str:
    """Return what the goal is about: ``net energy``, ``time`` or ``GPU load``."""
    noun = _WORDS[goal].noun
    return f"{energy} {noun}" if goal == "energy" else noun


def sentence_of(verdict: Verdict) -> str:
    """Return what is known of one goal: the difference with its interval, or why there is none.

    >>> gap = Figure(value=-0.01, low=-0.012, high=-0.008)
    >>> verdict = Verdict(
    ...     goal="latency", answer="first", better="gpu", dla_value=0.02, gpu_value=0.01,
    ...     less_on_dla=gap,
    ... )
    >>> sentence_of(verdict)
    '10.0 ms more on the DLA (8.00 ms to 12.0 ms)'
    """
    gap, show = verdict.less_on_dla, _WORDS[verdict.goal].show
    if verdict.answer == "too_few_runs":
        return f"{verdict.runs} of {verdict.runs_needed} runs on each device"
    if verdict.answer == "not_known" or gap.low is None or gap.high is None:
        return "not known yet: the runs differ too much from each other"
    if verdict.answer == "no_difference":
        ends = f"{show(abs(gap.high))} less to {show(abs(gap.low))} more"
        return f"no difference shown: {ends} on the DLA"
    low, high = sorted((abs(gap.low), abs(gap.high)))
    more = "less" if gap.value > 0 else "more"
    ends = ends_of(Figure(value=abs(gap.value), low=low, high=high), show)
    words = f"{show(abs(gap.value))} {more} on the DLA ({ends})"
    if verdict.answer == "not_sure":
        return f"not sure yet: {words}; one more run could change this"
    return words


def conclusion_of(verdicts: Iterable[Verdict]) -> str | None:
    """Return what the verdicts say together; None while none is decided.

    Gross energy is named where it contradicts net energy.

    >>> gap = Figure(value=-0.01, low=-0.012, high=-0.008)
    >>> verdict = Verdict(
    ...     goal="latency", answer="first", better="gpu", dla_value=0.02, gpu_value=0.01,
    ...     less_on_dla=gap,
    ... )
    >>> conclusion_of([verdict])
    'On the DLA: 2.0 times the time'
    """
    verdicts = sorted(verdicts, key=lambda verdict: [*_WORDS].index(verdict.goal))
    gross = next((one for one in verdicts if one.goal == "gross_energy"), None)
    verdicts = [verdict for verdict in verdicts if verdict is not gross]
    known, unknown = [], []
    for verdict in verdicts:
        noun = noun_of(verdict.goal, verdict.energy)
        contradiction = _contradiction(verdict, gross)
        if verdict.better is not None:
            known.append(_claim(verdict, noun) + (contradiction and f" but {contradiction}"))
        elif contradiction:
            known.append(contradiction)
        elif verdict.answer != "no_difference":
            unknown.append(f"{noun} not known yet")
    if known:
        return "On the DLA: " + ", ".join([*known, *unknown])
    if unknown or not verdicts:
        return None
    return "No difference between DLA and GPU is shown"


_DECIDED = ("first", "second", "no_difference")


def _contradiction(verdict: Verdict, gross: Verdict | None) -> str:
    """Return what gross energy says, where both are decided and differ; else nothing."""
    if verdict.goal != "energy" or gross is None or verdict.answer == gross.answer:
        return ""
    if verdict.answer not in _DECIDED or gross.answer not in _DECIDED:
        return ""
    if gross.better is None:
        return "no sure difference in gross energy"
    return _claim(gross, "gross energy")


def _claim(verdict: Verdict, noun: str) -> str:
    """Return how the DLA differs, for a goal that is decided."""
    dla, gpu = verdict.dla_value, verdict.gpu_value
    more = "more" if verdict.better == "gpu" else "less"
    if verdict.goal == "gpu":
        change = points(abs(gpu - dla))
        return f"frees {change} of the GPU" if more == "less" else f"{change} more {noun}"
    # Net energy may be about nothing; then no share of it means anything.
    if gpu <= 0 or dla <= 0:
        return f"{more} {noun}"
    if dla / gpu >= _TIMES:
        return f"{digits(dla / gpu, 2)} times the {noun}"
    return f"{digits(100 * abs(dla / gpu - 1), 2)} % {more} {noun}"
