"""Shared by all commands: output, exit status, progress, number formatting."""
