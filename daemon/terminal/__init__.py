"""The terminal of all commands: numbers as text, output, exit status, progress."""
