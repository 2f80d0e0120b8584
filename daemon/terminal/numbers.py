"""Numbers for people: three digits, and the unit that fits."""

from math import floor, log10

ABSENT = "–"

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_JOULES = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"))
_LARGE = ("", "k", "M", "G", "T", "P")


def digits(value: float, significant: int = 3) -> str:
    """Format a number with three digits and no exponent.

    >>> digits(0.0123456), digits(12.3456), digits(12345.6), digits(0.0)
    ('0.0123', '12.3', '12346', '0')
    """
    if value == 0:
        return "0"
    decimals = max(0, significant - 1 - floor(log10(abs(value))))
    return f"{value:.{decimals}f}"


def seconds(value: float) -> str:
    """Format a latency.

    >>> seconds(0.0031415), seconds(0.00031415), seconds(-0.02)
    ('3.14 ms', '314 µs', '-20.0 ms')
    """
    return _scaled(value, _SECONDS)


def joules(value: float) -> str:
    """Format an energy.

    >>> joules(0.0222), joules(1.25)
    ('22.2 mJ', '1.25 J')
    """
    return _scaled(value, _JOULES)


def watts(value: float) -> str:
    """Format a power.

    >>> watts(4.0)
    '4.00 W'
    """
    return f"{value:.2f} W"


def rate(value: float) -> str:
    """Format inputs per second.

    >>> rate(2989.4)
    '2989/s'
    """
    return f"{digits(value)}/s"


def percent(ratio: float) -> str:
    """Format a ratio in percent.

    >>> percent(0.97345), percent(0.005)
    ('97.3 %', '0.5 %')
    """
    return f"{100 * ratio:.1f} %"


def points(difference: float) -> str:
    """Format a difference of two ratios.

    >>> points(0.893)
    '89.3 points'
    """
    return f"{100 * difference:.1f} points"


def celsius(value: float) -> str:
    """Format a temperature."""
    return f"{value:.1f} °C"


def mebibytes(size: int) -> str:
    """Format a size in memory.

    >>> mebibytes(3 << 20)
    '3 MiB'
    """
    return f"{size / (1 << 20):.0f} MiB"


def duration(value: float) -> str:
    """Format a waiting time.

    >>> duration(42), duration(150), duration(5400), duration(86400)
    ('42 s', '2 min 30 s', '1 h 30 min', '24 h')
    """
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s".removesuffix(" 0 s")
    return f"{whole // 3600} h {whole % 3600 // 60} min".removesuffix(" 0 min")


def amount(count: int | None, unit: str) -> str:
    """Format a large count with three digits; an unknown one is empty.

    >>> amount(8_178_368_512, "FLOP"), amount(64, "B"), amount(None, "B")
    ('8.18 GFLOP', '64 B', '')
    """
    if count is None:
        return ""
    value, at = float(count), 0
    while value >= 999.5 and at < len(_LARGE) - 1:
        value, at = value / 1000, at + 1
    decimals = 0 if at == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f} {_LARGE[at]}{unit}"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    for size, name in units:
        if abs(value) >= size:
            return f"{digits(value / size)} {name}"
    size, name = units[-1]
    return f"{digits(value / size)} {name}" if value else f"0 {units[0][1]}"
