"""Deletion from the store: by age if the age is known, else by the amount of newer data.

A wall clock may be wrong. A board without a battery starts in 1970, or on the day on which its
system was built, and jumps when the network comes. A bad time server may set it fifty years ahead.
So a record with such a time is never deleted for its age. A clock far ahead of the stored data is
trusted only after a day of telemetry with it.
"""

import sqlite3

# The program did not exist before 2024; a clock with an earlier year was never set.
_FIRST_WALL_NS = 1_704_067_200_000_000_000  # 2024
_DAY_NS = 86_400_000_000_000
_PLAUSIBLE_NS = 366 * _DAY_NS
# A block has ten seconds or more.
_BLOCK_NS = 10_000_000_000
_DAY_OF_BLOCKS = _DAY_NS // _BLOCK_NS
_UNDATED_RUNS = 100_000


def prune(store: sqlite3.Connection, now_ns: int, samples_ns: int, runs_ns: int) -> bool:
    """Delete data beyond its retention; the caller commits.

    Blocks with an impossible wall time are deleted after one retention's worth of newer blocks. The
    latest hundred thousand runs with such a time stay.

    ``now_ns`` is the wall time, right or wrong; ``samples_ns`` and ``runs_ns`` are the retentions.

    Returns:
        Whether the wall clock was trusted; else nothing was deleted for its age.
    """
    trusted = is_trusted(store, now_ns)
    # Without a trusted clock, the time of every block counts as wrong.
    latest_ns = now_ns + _DAY_NS if trusted else 0
    store.execute(
        "DELETE FROM blocks WHERE (end_wall_ns < ?1 OR end_wall_ns > ?2)"
        " AND id <= (SELECT max(id) FROM blocks) - ?3",
        (_FIRST_WALL_NS, latest_ns, samples_ns // _BLOCK_NS + 1),
    )
    store.execute(
        "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs WHERE started_wall_ns < ?"
        " AND NOT in_flight ORDER BY started_wall_ns DESC LIMIT -1 OFFSET ?)",
        (_FIRST_WALL_NS, _UNDATED_RUNS),
    )
    if trusted:
        store.execute(
            "DELETE FROM blocks WHERE end_wall_ns >= ? AND end_wall_ns < ?",
            (_FIRST_WALL_NS, now_ns - samples_ns),
        )
        store.execute(
            "DELETE FROM runs WHERE started_wall_ns >= ? AND started_wall_ns < ? AND NOT in_flight",
            (_FIRST_WALL_NS, now_ns - runs_ns),
        )
    return trusted


def is_trusted(store: sqlite3.Connection, now_ns: int) -> bool:
    """Return whether a wall time may decide about deletion.

    It may if it is at most a year ahead of the data stored one day of telemetry ago. A board that
    was off for longer keeps its records for one more day.
    """
    (reference_ns,) = store.execute(
        "SELECT coalesce("
        "(SELECT end_wall_ns FROM blocks WHERE end_wall_ns >= ?1"
        " AND id <= (SELECT max(id) FROM blocks) - ?2 ORDER BY id DESC LIMIT 1),"
        " (SELECT end_wall_ns FROM blocks WHERE end_wall_ns >= ?1 ORDER BY id LIMIT 1),"
        " (SELECT min(started_wall_ns) FROM runs WHERE started_wall_ns >= ?1), ?3)",
        (_FIRST_WALL_NS, _DAY_OF_BLOCKS, now_ns),
    ).fetchone()
    return bool(_FIRST_WALL_NS <= now_ns <= reference_ns + _PLAUSIBLE_NS)
