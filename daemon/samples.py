"""Samples as JSON documents, old ones from the store and new ones from the timeline."""

import logging
from collections.abc import Callable, Iterator
from itertools import chain, islice
from math import isnan
from typing import Any

from .blocks import Block, CorruptBlockError, decode
from .history import History
from .identity import boot_id
from .timeline import Timeline

_FAR_OFF_NS = 1 << 62
# A time in seconds is a float, which is good for less than this.
_ROUNDING_NS = 1000

_LOG = logging.getLogger(__name__)


def samples_since(
    history: History, timeline: Timeline, since_seconds: float, limit: int
) -> Iterator[dict[str, Any]]:
    """Yield the samples that came later than a wall time, oldest first.

    Where the wall clock was set back, those of the last hour come in the order of their arrival.

    Args:
        history: The store.
        timeline: The last hour, with what the store does not hold yet.
        since_seconds: Wall time; ask again with the last sample's to go on.
        limit: At most so many.

    Returns:
        Documents with ``time`` (seconds since 1970), ``source`` and ``values`` by name, as
        ``flatten`` names them.
    """
    blocks = blocks_between(history, timeline, int(since_seconds * 1e9) - _ROUNDING_NS)
    return islice(chain.from_iterable(_rows(block, since_seconds) for block in blocks), limit)


def blocks_between(
    history: History,
    timeline: Timeline,
    since_wall_ns: int,
    until_wall_ns: int = _FAR_OFF_NS,
    wanted: Callable[[str], bool] | None = None,
) -> Iterator[Block]:
    """Yield the blocks that touch a stretch of wall time, oldest first, each of them once.

    Args:
        history: The store.
        timeline: The last hour, with what the store does not hold yet.
        since_wall_ns: Start of the stretch.
        until_wall_ns: Its end.
        wanted: Says of a name whether its column is asked for; without it, all are.
    """
    # Memory is asked first: a block that is stored meanwhile must not be missed, nor come twice.
    in_memory = timeline.blocks_since(since_wall_ns, until_wall_ns, wanted)
    first = next(in_memory, None)
    but_from = None if first is None else (boot_id(), first.times_ns[0])
    for data in history.blocks(since_wall_ns, until_wall_ns, but_from):
        try:
            yield decode(data, wanted)
        except CorruptBlockError as error:
            _LOG.warning("a stored block of samples is left out: %s", error)
    if first is not None:
        yield first
        yield from in_memory


def _rows(block: Block, since_seconds: float) -> Iterator[dict[str, Any]]:
    for row, wall_ns in enumerate(block.wall_ns):
        # As it is served, so that a time that was served is met exactly.
        time = wall_ns / 1e9
        if time > since_seconds:
            values = {name: column[row] for name, column in block.columns.items()}
            yield {
                "time": time,
                "source": block.source,
                "values": {name: value for name, value in values.items() if not isnan(value)},
            }
