"""Which data is deleted, for its age or for the size of the file."""

import sqlite3

# The program did not exist before 2024; a clock with an earlier year was never set.
_FIRST_WALL_NS = 1_704_067_200_000_000_000  # 2024
_DAY_NS = 86_400_000_000_000
_PLAUSIBLE_NS = 366 * _DAY_NS
# A block has ten seconds or more.
_BLOCK_NS = 10_000_000_000
_DAY_OF_BLOCKS = _DAY_NS // _BLOCK_NS
_UNDATED_RUNS = 100_000
# Rows that are deleted at a time for the size limit, and how often in one call.
_LIMIT_ROWS, _LIMIT_ROUNDS = 64, 100


def is_trusted(store: sqlite3.Connection, now_ns: int) -> bool:
    """Return whether a wall time is plausible, so that data may be deleted for its age.

    It is if it is at most a year later than the data that came one day of telemetry ago. A board
    that was off for longer keeps its records for one more day.
    """
    (reference_ns,) = store.execute(
        # A damaged row may have a text as its time.
        "SELECT CAST(coalesce("
        "(SELECT end_wall_ns FROM blocks WHERE end_wall_ns >= :first"
        " AND id <= (SELECT max(id) FROM blocks) - :day ORDER BY id DESC LIMIT 1),"
        " (SELECT end_wall_ns FROM blocks WHERE end_wall_ns >= :first ORDER BY id LIMIT 1),"
        " (SELECT min(started_wall_ns) FROM runs WHERE started_wall_ns >= :first), :now)"
        " AS INTEGER)",
        {"first": _FIRST_WALL_NS, "day": _DAY_OF_BLOCKS, "now": now_ns},
    ).fetchone()
    return bool(_FIRST_WALL_NS <= now_ns <= reference_ns + _PLAUSIBLE_NS)


def prune(writer: sqlite3.Connection, now_ns: int, samples_ns: int, runs_ns: int) -> bool:
    """Delete data beyond its retention, and return whether the clock is trusted."""
    execute = writer.execute
    trusted = is_trusted(writer, now_ns)
    # Without a trusted clock, the time of every block counts as wrong.
    latest_ns = now_ns + _DAY_NS if trusted else 0
    execute(
        "DELETE FROM blocks WHERE (end_wall_ns < ? OR end_wall_ns > ?)"
        " AND id <= (SELECT max(id) FROM blocks) - ?",
        (_FIRST_WALL_NS, latest_ns, samples_ns // _BLOCK_NS + 1),
    )
    execute(
        "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs WHERE started_wall_ns < ?"
        " AND NOT in_flight ORDER BY started_wall_ns DESC LIMIT -1 OFFSET ?)",
        (_FIRST_WALL_NS, _UNDATED_RUNS),
    )
    if trusted:
        execute(
            "DELETE FROM blocks WHERE end_wall_ns >= ? AND end_wall_ns < ?",
            (_FIRST_WALL_NS, now_ns - samples_ns),
        )
        execute(
            "DELETE FROM runs WHERE started_wall_ns >= ? AND started_wall_ns < ? AND NOT in_flight",
            (_FIRST_WALL_NS, now_ns - runs_ns),
        )
    return trusted


def limit(writer: sqlite3.Connection, most_bytes: int) -> None:
    """Delete the oldest telemetry, then the oldest runs, until the pages in use fit a size."""
    for _ in range(_LIMIT_ROUNDS):
        if _bytes_in_use(writer) <= most_bytes:
            return
        # By the order of arrival, since a wall clock may be wrong.
        deleted = writer.execute(
            "DELETE FROM blocks WHERE id IN (SELECT id FROM blocks ORDER BY id LIMIT ?)",
            (_LIMIT_ROWS,),
        ).rowcount
        if not deleted:
            writer.execute(
                "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs WHERE NOT in_flight"
                " ORDER BY started_wall_ns, run_id LIMIT ?)",
                (_LIMIT_ROWS,),
            )


def _bytes_in_use(writer: sqlite3.Connection) -> int:
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    (free_pages,) = writer.execute("PRAGMA freelist_count").fetchone()
    (page_bytes,) = writer.execute("PRAGMA page_size").fetchone()
    return int((pages - free_pages) * page_bytes)
