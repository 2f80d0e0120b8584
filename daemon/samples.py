"""Samples as JSON documents, old ones from the store and new ones from the timeline."""

from collections.abc import Iterator
from itertools import islice
from math import isnan
from typing import Any

from .blocks import Block, decode
from .history import History
from .timeline import Timeline

_FAR_OFF_NS = 1 << 62


def samples_since(
    history: History, timeline: Timeline, since_wall_ns: int, limit: int
) -> Iterator[dict[str, Any]]:
    """Yield the samples that came later than a wall time, oldest first.

    Args:
        history: The store.
        timeline: The last hour, with what the store does not hold yet.
        since_wall_ns: Wall time; ask again with the last sample's to go on.
        limit: At most so many.

    Returns:
        Documents with ``time`` (seconds since 1970), ``source`` and ``values`` by name, as
        ``flatten`` names them.
    """
    return islice(_documents(history, timeline, since_wall_ns), limit)


def _documents(
    history: History, timeline: Timeline, since_wall_ns: int
) -> Iterator[dict[str, Any]]:
    latest_ns = since_wall_ns
    for data in history.blocks(since_wall_ns, _FAR_OFF_NS):
        block = decode(data)
        yield from _rows(block, latest_ns)
        latest_ns = max(latest_ns, block.wall_ns[-1])
    for block in timeline.blocks_since(latest_ns):
        yield from _rows(block, latest_ns)


def _rows(block: Block, since_wall_ns: int) -> Iterator[dict[str, Any]]:
    for row, wall_ns in enumerate(block.wall_ns):
        if wall_ns > since_wall_ns:
            values = {name: column[row] for name, column in block.columns.items()}
            yield {
                "time": wall_ns / 1e9,
                "source": block.source,
                "values": {name: value for name, value in values.items() if not isnan(value)},
            }
