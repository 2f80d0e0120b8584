"""The board is told by its rails, and never by a part of another one's."""

import pytest

from tegrascope.collectors.board import find_rail_rule, rail_rules


@pytest.mark.parametrize("rule", rail_rules(), ids=lambda rule: rule.name)
def test_each_rule_is_found_by_its_own_rails(rule):
    """No rule stands behind one that takes its board away."""
    found = find_rail_rule(rule.rails)
    assert found is not None
    assert found.name == rule.name
    assert set(found.total) <= set(found.rails)


def test_gpu_alone_is_no_jetson_and_no_jetson_is_a_gpu():
    """A rail of that name stands on boards too: only a line with no other is of a bare GPU."""
    gpu = find_rail_rule(["GPU"])
    assert gpu is not None
    assert (gpu.name, gpu.dla) == ("NVIDIA GPU", None)
    assert find_rail_rule(["GPU", "CPU"]) is None
    xavier = find_rail_rule(["GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"])
    assert xavier is not None
    assert xavier.name == "AGX Xavier"
