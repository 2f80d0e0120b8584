"""Samples as JSON documents, old ones from the store and new ones from the timeline."""

import logging
from collections.abc import Iterator
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
    blocks = _blocks(history, timeline, int(since_seconds * 1e9) - _ROUNDING_NS)
    return islice(chain.from_iterable(_rows(block, since_seconds) for block in blocks), limit)


def _blocks(history: History, timeline: Timeline, since_wall_ns: int) -> Iterator[Block]:
    # Memory is asked first: a block that is stored meanwhile must not be missed, nor come twice.
    in_memory = timeline.blocks_since(since_wall_ns)
    first = next(in_memory, None)
    but_from = None if first is None else (boot_id(), first.times_ns[0])
    for data in history.blocks(since_wall_ns, _FAR_OFF_NS, but_from):
        try:
            yield decode(data)
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
