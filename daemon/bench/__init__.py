"""``tegrascope bench``: one model on each accelerator, in turns, and what that says."""
