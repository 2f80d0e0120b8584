"""What models do to each other as rows of a table, for the terminal and for the page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...collectors.models.files import BUILTIN_PREFIX
from .contention_result import Contention, LaneTogether, Placed, Together
from .measured import Figure
from .rows import NOTHING
from .words import digits, joules, seconds, with_half

TITLE = "Together"
HEADS = ("lane", "p50", "slowdown", "at p99", "adds", "each")
EXPLAINED = (
    "Slowdown is median latency over that of the same model alone, round by round. What a model"
    " adds is the module's net power with it on less that with it off, the others running; each of"
    " its inferences has its share of that. Energy of a window is that of all who ran: it is not"
    " split."
)


@dataclass(frozen=True)
class Group:
    """One placement.

    Attributes:
        title: Who ran where, and what the module took meanwhile, or why that is not known.
        rows: One a lane; cells in the order of ``HEADS``.
        is_doubtful: Whether its figures are not to be taken at face value.
    """

    title: str
    rows: tuple[tuple[str, ...], ...]
    is_doubtful: bool = False


def groups_of(contention: Contention) -> Iterator[Group]:
    """Yield the placements of two models or more, in the order of the first pass."""
    for one in contention.together:
        if len(one.lanes) > 1:
            rows = tuple(tuple(_cells(lane)) for lane in one.lanes) if one.status == "ok" else ()
            yield Group(_title(one), rows, one.status != "ok" or bool(_told_flags(one)))


def nothing(contention: Contention) -> str | None:
    """Say why there is nothing to show, where there is nothing."""
    if contention.together:
        return None
    return "nothing was measured together: fewer than two models ran alone"


def name_of(model: str) -> str:
    """Return a model's name as people call it.

    >>> name_of("nets/yolo.onnx"), name_of("builtin:resnet50")
    ('yolo', 'resnet50')
    """
    return Path(model.removeprefix(BUILTIN_PREFIX)).stem


def placed_name(placed: Placed) -> str:
    """Say which model and where."""
    return f"{name_of(placed.model)} on {placed.device}"


def _cells(lane: LaneTogether) -> Iterator[str]:
    yield placed_name(lane)
    yield _plain(lane.latency_seconds, seconds)
    yield NOTHING if lane.slowdown is None else with_half(lane.slowdown, _times)
    yield NOTHING if lane.tail_slowdown is None else _times(lane.tail_slowdown)
    yield NOTHING if lane.marginal_watts is None else _watts(lane.marginal_watts)
    yield _plain(lane.marginal_joules_per_inference, joules)


def _title(one: Together) -> str:
    who = " + ".join(map(placed_name, one.lanes))
    if one.status != "ok":
        return f"{who}: {one.status}, {one.reason}"
    told = [f"{one.rounds} rounds of {digits(one.seconds or 0.0)} s"]
    if one.gross_joules is not None:
        told.append(f"{with_half(one.gross_joules, joules)} gross for all")
    if one.net_joules is not None:
        told.append(f"{with_half(one.net_joules, joules)} net")
    if one.excess_watts is not None:
        told.append(f"{_signed(one.excess_watts)} than the same work alone")
    if _told_flags(one):
        told.append("flags " + " ".join(_told_flags(one)))
    return f"{who}: {', '.join(told)}"


def _told_flags(one: Together) -> list[str]:
    """Return its flags, but that it is simulated: of that the whole page speaks."""
    return sorted(flag for flag in one.flags if flag != "simulated")


def _signed(excess: Figure) -> str:
    words = f"{digits(abs(excess.value), 2)} W {'more' if excess.value >= 0 else 'less'}"
    if excess.low is None or excess.high is None:
        return words
    return f"{words} ({digits(excess.low, 2)} to {digits(excess.high, 2)})"


def _times(value: float) -> str:
    return f"{value:.2f}×"


def _watts(figure: Figure) -> str:
    """Say a power that may be near nothing: half its interval in watts, not in percent."""
    if figure.low is None or figure.high is None:
        return f"{figure.value:.2f} W"
    return f"{figure.value:.2f} ± {digits((figure.high - figure.low) / 2, 2)} W"


def _plain(figure: Figure | None, say: Callable[[float], str]) -> str:
    return NOTHING if figure is None else say(figure.value)
