"""What a profiler says of single layers, with those of a DLA put together.

The row of a DLA's subgraph is its submission alone; the time that the DLA takes is waited for in
the row of a copy that follows it. So such a row is never told by itself.
"""

from collections.abc import Collection, Sequence

_INTO = (" to nvm",)
_OUT_OF = (" from nvm", " copy finish", " copy", "_copy_output")
_REFORMAT = "reformatting copynode"


def group_dla_rows(rows: Sequence[tuple[str, int]], dla_layers: Collection[str]) -> dict[str, int]:
    """Put the rows around each subgraph of a DLA together, under its name.

    Args:
        rows: Layer and time, in the order of the engine.
        dla_layers: Names of the subgraphs; none on a GPU, whose rows stay as they are.

    Returns:
        Layer to time. A subgraph's is that of its own row, of the copies into its memory before
        it, and of the copies that follow it.

    >>> rows = [("in to nvm", 20), ("{ForeignNode[a...b]}", 8), ("out from nvm", 7690), ("fc", 5)]
    >>> group_dla_rows(rows, ["{ForeignNode[a...b]}"])
    {'{ForeignNode[a...b]}': 7718, 'fc': 5}
    """
    grouped: dict[str, int] = {}
    waiting: list[tuple[str, int]] = []
    owner: str | None = None
    for name, time in rows:
        if name in dla_layers:
            owner = name
            grouped[name] = grouped.get(name, 0) + time + sum(spent for _, spent in waiting)
            waiting = []
        elif dla_layers and _is_like(name, _INTO):
            waiting.append((name, time))
        elif owner is not None and _is_like(name, _OUT_OF):
            grouped[owner] += time
        else:
            owner = None
            grouped[name] = grouped.get(name, 0) + time
    for name, time in waiting:
        grouped[name] = grouped.get(name, 0) + time
    return grouped


def _is_like(name: str, endings: tuple[str, ...]) -> bool:
    lower = name.lower()
    return lower.endswith(endings) or (endings is _OUT_OF and lower.startswith(_REFORMAT))
