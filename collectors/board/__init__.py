"""Reads a board's files: facts, rail rules, clocks, temperatures, fans."""
