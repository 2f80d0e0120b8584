"""``make bench``: lines a second of every way to read a log, and whether each number is right."""
