"""What all commands share on a terminal: numbers as text, output, exit status, progress."""
