"""Reads a desktop or server GPU by NVML."""
