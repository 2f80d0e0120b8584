"""Figures as a person reads them: three digits, and the unit that fits."""

from collections.abc import Callable
from math import floor, log10

from .measured import Figure

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_JOULES = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"))


def digits(value: float, significant: int = 3) -> str:
    """Print a number with three digits and no exponent.

    >>> digits(0.0123456), digits(12.3456), digits(12345.6), digits(0.0)
    ('0.0123', '12.3', '12346', '0')
    """
    if value == 0:
        return "0"
    decimals = max(0, significant - 1 - floor(log10(abs(value))))
    return f"{value:.{decimals}f}"


def seconds(value: float) -> str:
    """Print a time.

    >>> seconds(0.0031415), seconds(0.00031415), seconds(-0.02)
    ('3.14 ms', '314 µs', '-20.0 ms')
    """
    return _scaled(value, _SECONDS)


def joules(value: float) -> str:
    """Print an energy.

    >>> joules(0.0222), joules(1.25)
    ('22.2 mJ', '1.25 J')
    """
    return _scaled(value, _JOULES)


def rate(value: float) -> str:
    """Print inputs a second.

    >>> rate(2989.4)
    '2989/s'
    """
    return f"{digits(value)}/s"


def percent(value: float) -> str:
    """Print a ratio as percents.

    >>> percent(0.97345), percent(0.005)
    ('97.3 %', '0.5 %')
    """
    return f"{100 * value:.1f} %"


def points(value: float) -> str:
    """Print a difference of two ratios.

    >>> points(0.893)
    '89.3 points'
    """
    return f"{100 * value:.1f} points"


def with_half(figure: Figure, say: Callable[[float], str]) -> str:
    """Print a figure and half its interval.

    >>> with_half(Figure(value=0.0222, low=0.0212, high=0.0232), joules)
    '22.2 mJ ± 4.5 %'
    """
    if figure.low is None or figure.high is None or figure.value == 0:
        return say(figure.value)
    half = (figure.high - figure.low) / 2 / abs(figure.value)
    return f"{say(figure.value)} ± {digits(100 * half, 2)} %"


def duration(value: float) -> str:
    """Print a stretch of time that a person waits.

    >>> duration(42), duration(150), duration(5400)
    ('42 s', '2 min 30 s', '1 h 30 min')
    """
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    for size, name in units:
        if abs(value) >= size:
            return f"{digits(value / size)} {name}"
    size, name = units[-1]
    return f"{digits(value / size)} {name}" if value else f"0 {units[0][1]}"
