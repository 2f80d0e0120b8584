"""``tegrascope doctor``: what this machine has, what is missing, and what mends it."""
