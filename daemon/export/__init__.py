"""Snapshot of the present state and the metric page made from it."""
