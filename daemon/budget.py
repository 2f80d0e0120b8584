"""Terms of uncertainty become intervals, gross and net, and the largest gets its name."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot

from .energy import idle_share
from .quality import baseline_drift
from .run_report import Interval, Span
from .uncertainty import Spread

Terms = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Idle:
    """Power of one idle phase.

    Attributes:
        span: The phase.
        watts: Its mean.
        spread: How sure that is; ``None`` where there were too few samples to tell.
    """

    span: Span
    watts: float
    spread: Spread | None

    @property
    def measured(self) -> tuple[Span, float]:
        """When and how much, as ``interpolate_idle`` takes it."""
        return self.span, self.watts


def gross_terms(work: Spread | None, seconds: float) -> Terms | None:
    """Return half widths in joules of the gross energy, by term; ``None`` if not known."""
    if work is None:
        return None
    return {"sampling": work.sampling * seconds, "quantisation": work.quantisation * seconds}


def net_terms(
    gross: Terms | None, before: Idle | None, after: Idle | None, window: Span
) -> Terms | None:
    """Return half widths in joules of the net energy, by term.

    The idle power adds its own sampling, weighted as ``interpolate_idle`` weights it, and its
    rounding, taken as the larger of the two, since a quiet board rounds alike before and after.
    Between the two idle phases the idle power may have been as before all along, or as after:
    that is ``baseline_drift``.

    Returns:
        The terms; ``None`` with one idle phase only, for then its drift is not known, and an
        interval that leaves out an unknown is none.
    """
    if gross is None or before is None or after is None:
        return None
    if before.spread is None or after.spread is None:
        return None
    share = idle_share(before.span, after.span, window)
    drift = max(share, 1 - share) * abs(after.watts - before.watts)
    sampling = hypot((1 - share) * before.spread.sampling, share * after.spread.sampling)
    rounding = max(before.spread.quantisation, after.spread.quantisation)
    return {
        "sampling": hypot(gross["sampling"], sampling * window.seconds),
        "quantisation": hypot(gross["quantisation"], rounding * window.seconds),
        "baseline_drift": drift * window.seconds,
    }


def around(
    joules: float, terms: Terms | None, edges: tuple[float, float], floor: float | None = None
) -> Interval | None:
    """Return the 95 % interval around an energy.

    Args:
        joules: The energy.
        terms: Half widths of what is independent, which adds in quadrature.
        edges: What the edges of the window hide, at least and at most, which adds as it is.
        floor: Below which the truth cannot be.
    """
    if terms is None:
        return None
    half = hypot(*terms.values())
    low = joules + edges[0] - half
    return Interval(low=low if floor is None else max(low, floor), high=joules + edges[1] + half)


def largest(terms: Terms | None, edges: tuple[float, float]) -> str | None:
    """Return the name of the largest term, ``window_edges`` among them."""
    if terms is None:
        return None
    widths = {**terms, "window_edges": max(-edges[0], edges[1])}
    return max(widths, key=widths.__getitem__)


def drifted(before: Idle | None, after: Idle | None, net_watts: float | None) -> bool:
    """Tell whether idle power moved so much that it matters; not known is not so."""
    if before is None or after is None or before.spread is None or after.spread is None:
        return False
    uncertain = hypot(before.spread.watts, after.spread.watts)
    return baseline_drift(after.watts - before.watts, uncertain, net_watts or 0.0)
