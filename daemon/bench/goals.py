"""Who is best at what; and where this measurement can't tell, that it can't."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..measure.run_report import Interval
from .measured import Figure
from .result import AcceleratorResult, GoalName, GoalResult
from .statistics import difference
from .words import joules, percent, points, rate, seconds


@dataclass(frozen=True)
class Goal:
    """Something that a person may want most.

    Attributes:
        name: Of the goal.
        title: For people.
        what: The figure that decides, in words.
        read: The same, of a result.
        say: Prints it with its unit.
        say_difference: Prints a difference of two.
        more_is_better: Whether the largest wins.
    """

    name: GoalName
    title: str
    what: str
    read: Callable[[AcceleratorResult], Figure | None]
    say: Callable[[float], str]
    say_difference: Callable[[float], str]
    more_is_better: bool = False


GOALS = (
    Goal("latency", "Latency", "median latency", lambda one: one.latency_seconds, seconds, seconds),
    Goal(
        "energy",
        "Energy",
        "net energy of an inference",
        lambda one: one.net_joules_per_inference,
        joules,
        joules,
    ),
    Goal("gpu_freed", "GPU freed", "GPU load", lambda o: o.utilization.get("gpu"), percent, points),
    Goal(
        "throughput",
        "Throughput",
        "inputs",
        lambda one: one.throughput_per_second,
        rate,
        rate,
        more_is_better=True,
    ),
)


def decide(goal: Goal, results: Sequence[AcceleratorResult]) -> GoalResult:
    """Name the winner of a goal, if the difference to the next is outside its interval.

    Args:
        goal: What is wanted.
        results: All accelerators; those that failed or answer wrongly are left out.
    """
    found = [
        (figure, one.device)
        for one in results
        if one.may_win and (figure := goal.read(one)) is not None
    ]
    found.sort(key=lambda pair: pair[0].value, reverse=goal.more_is_better)
    if not found:
        return GoalResult(goal=goal.name, sentence=f"{goal.title}: not known")
    best, device = found[0]
    if len(found) == 1:
        words = f"nothing to compare with; {goal.what} {goal.say(best.value)} on {device}"
        return GoalResult(goal=goal.name, sentence=f"{goal.title}: {words}")
    second, other = found[1]
    interval = difference(second, best) if goal.more_is_better else difference(best, second)
    wins = interval is not None and interval.low > 0
    verdict = f"{device} wins" if wins else "no difference that this measurement can tell"
    return GoalResult(
        goal=goal.name,
        winner=device if wins else None,
        runner_up=other if wins else None,
        difference=abs(second.value - best.value),
        interval=interval,
        sentence=(
            f"{goal.title}: {verdict}; {goal.what} {goal.say(best.value)} on {device},"
            f" {goal.say(second.value)} on {other}; {_in_words(goal, interval)}"
        ),
    )


def _in_words(goal: Goal, interval: Interval | None) -> str:
    if interval is None:
        return "one round does not tell how sure it is"
    low, high = (goal.say_difference(end) for end in (interval.low, interval.high))
    return f"95 % interval of the difference {low} to {high}"
