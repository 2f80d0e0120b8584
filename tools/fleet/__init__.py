"""A simulated fleet: many boards in one process, each with a page made as a daemon makes it."""
