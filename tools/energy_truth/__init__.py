"""A test for every energy meter: 100 worlds with exact energy, and a scorer of tools on them.

``METHOD.md`` says how it works and ``docs/energy-truth.md`` has the results. Nothing here uses a
formula of the product or a part of its simulator, and nothing here is part of the wheel.

What belongs here: the generator of the worlds, the stand-ins that play them, one driver per tool,
and the scorer. What does not: anything that would make one tool look better than its users see it.
"""
