"""A simulated fleet: many boards in one process, each with the metric page of a daemon."""
