"""What a program that infers may say of itself on its standard output."""

import re

_INFERENCES = re.compile(r"\s*tegrascope: inferences=([0-9]{1,12})\s*", re.ASCII)


def inferences_in(line: str) -> int | None:
    """Read how many inferences a program made since it said so last.

    Args:
        line: ``tegrascope: inferences=N``, alone on its line.

    Returns:
        The number; ``None`` for every other line.

    >>> inferences_in("tegrascope: inferences=1200"), inferences_in("1200 inferences")
    (1200, None)
    """
    found = _INFERENCES.fullmatch(line)
    return None if found is None else int(found[1])
