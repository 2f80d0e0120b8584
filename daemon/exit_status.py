"""What a command's exit status means."""

GOOD, FAILED, USAGE, CHECK_SAYS_NO = 0, 1, 2, 3
