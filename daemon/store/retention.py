"""What goes from the store, and when: by age where that is known, else by what came after it.

A wall clock may be wrong. A board without a battery starts in 1970, or on the day on which its
system was built, and jumps to now when the network comes; a bad time server may send it fifty
years ahead. So a record that bears such a time is never deleted for its age, and a clock that is
far ahead of what was stored is not believed before it has been so for a day of telemetry.
"""

import sqlite3

# Nobody ran this before; a clock that says so was not set.
_FIRST_WALL_NS = 1_704_067_200_000_000_000  # 2024
_DAY_NS = 86_400_000_000_000
_BELIEVED_NS = 366 * _DAY_NS
# A block is ten seconds long, or longer.
_BLOCK_NS = 10_000_000_000
_DAY_OF_BLOCKS = _DAY_NS // _BLOCK_NS
_UNDATED_RUNS = 100_000


def prune(store: sqlite3.Connection, now_ns: int, samples_ns: int, runs_ns: int) -> bool:
    """Delete what is older than its retention; the caller commits.

    Blocks of samples whose wall time cannot be right go when so many others were stored after
    them as a retention's time of telemetry has. Of such runs the latest hundred thousand stay.

    Args:
        store: Writes the database.
        now_ns: Wall time now, right or not.
        samples_ns: How long telemetry is kept.
        runs_ns: How long runs are kept.

    Returns:
        Whether the wall clock was believed; else nothing was deleted for its age.
    """
    believed = is_believed(store, now_ns)
    # Without a clock to go by, every block is like one whose time cannot be right.
    latest_ns = now_ns + _DAY_NS if believed else 0
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
    if believed:
        store.execute(
            "DELETE FROM blocks WHERE end_wall_ns >= ? AND end_wall_ns < ?",
            (_FIRST_WALL_NS, now_ns - samples_ns),
        )
        store.execute(
            "DELETE FROM runs WHERE started_wall_ns >= ? AND started_wall_ns < ? AND NOT in_flight",
            (_FIRST_WALL_NS, now_ns - runs_ns),
        )
    return believed


def is_believed(store: sqlite3.Connection, now_ns: int) -> bool:
    """Say whether a wall time may decide on what is deleted.

    It may where it is at most a year ahead of what had been stored a day of telemetry ago: a
    board that lay on a shelf for longer just keeps its records for a day more.
    """
    (reference_ns,) = store.execute(
        "SELECT coalesce("
        "(SELECT end_wall_ns FROM blocks WHERE end_wall_ns >= ?1"
        " AND id <= (SELECT max(id) FROM blocks) - ?2 ORDER BY id DESC LIMIT 1),"
        " (SELECT end_wall_ns FROM blocks WHERE end_wall_ns >= ?1 ORDER BY id LIMIT 1),"
        " (SELECT min(started_wall_ns) FROM runs WHERE started_wall_ns >= ?1), ?3)",
        (_FIRST_WALL_NS, _DAY_OF_BLOCKS, now_ns),
    ).fetchone()
    return bool(_FIRST_WALL_NS <= now_ns <= reference_ns + _BELIEVED_NS)
