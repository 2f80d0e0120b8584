"""Limits of the marks of an application's own inference, which both sides of the API keep."""

# Ten thousand times of start, end and three stages are 600 KB of JSON.
TIMES_AT_MOST = 10_000
PHASES_AT_MOST, PHASE_NAMES_AT_MOST = 2000, 8
NAME_PATTERN = "[a-z][a-z0-9_]{0,31}"
"""Of a unit, and of a phase."""
