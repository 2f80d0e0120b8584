"""Pairs runs with telemetry: timeline, energy, uncertainty, utilisation, quality flags. No I/O."""
