"""The counter that the DLA's driver stamps its tasks with."""

COUNTER_HERTZ = 31_250_000.0
"""Its rate on Orin and Xavier."""
