"""Starts, reads and ends child processes; the meaning of their lines is not known here."""
