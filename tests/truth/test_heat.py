"""Some boards that warm up, with a seed drawn at run time."""

import secrets

from .heat import LEAST_SHOWN, judge, shares

WORLDS = 200


def test_forecasts_are_shown_and_right():
    """docs/validation.md has 1,000 worlds; by chance 200 are worse, as far as these limits."""
    seed = secrets.randbits(31)
    judged = judge(seed, WORLDS)
    shown, right = shares(judged)
    wrong = [one for one in judged if one.reason is None and not one.is_right]
    print(f"seed {seed}: {shown:.3f}, {right:.3f}, {wrong}")
    assert shown > LEAST_SHOWN - 0.1
    assert right > 0.88
    assert any(one.reason is not None for one in judged if one.slowest > 900)
