"""Large amounts in a few letters."""

_UNITS = ("", "k", "M", "G", "T", "P")


def amount(count: int | None, unit: str) -> str:
    """Write an amount with three digits; nothing for one that is not known.

    >>> amount(8_178_368_512, "FLOP"), amount(64, "B"), amount(None, "B")
    ('8.18 GFLOP', '64 B', '')
    """
    if count is None:
        return ""
    value, at = float(count), 0
    while value >= 999.5 and at < len(_UNITS) - 1:
        value, at = value / 1000, at + 1
    digits = (
        f"{value:.0f}" if at == 0 or value >= 99.95 else f"{value:.{1 if value >= 9.995 else 2}f}"
    )
    return f"{digits} {_UNITS[at]}{unit}"


def intensity(flops_per_byte: float | None) -> str:
    """Write operations for a byte; nothing where it is not known.

    >>> intensity(48.67), intensity(0.25), intensity(3866.4), intensity(None)
    ('48.7', '0.25', '3866', '')
    """
    if flops_per_byte is None:
        return ""
    return f"{flops_per_byte:.3g}" if flops_per_byte < 999.5 else f"{flops_per_byte:.0f}"
