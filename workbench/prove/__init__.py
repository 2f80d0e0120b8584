"""``tegrascope prove``: beliefs about boards, evidence of this one, and what it proves.

``beliefs.toml`` has the words of each belief, and the module of its subject the check of the same
name: a pure function from evidence to a verdict. ``probes`` gathers the evidence, ``scrub`` removes
what is private from it, ``runner`` does both within a time, ``report`` writes and merges files.
"""
