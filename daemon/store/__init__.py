"""Keeps runs and telemetry in SQLite."""
