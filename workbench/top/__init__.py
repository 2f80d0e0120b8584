"""``tegrascope top``: a live screen of one daemon, for a terminal."""
