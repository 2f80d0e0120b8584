"""The board is told by its rails, and never by a part of another one's."""

import json
from pathlib import Path

import pytest

from tegrascope import parse_line
from tegrascope.collectors.board.boards import find_rail_rule, rail_rules

CAPTURES = Path(__file__).parents[1] / "captures"
CORPUS = Path(__file__).parents[3] / "shared/corpus/tegrastats/lines.jsonl"
# What each captured board is told to be, and what its total is made of; None is no total.
ORIN = ("AGX Orin", {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"})
SMALL = ("Orin NX, Orin Nano or Xavier NX", {"VDD_IN"})
XAVIER = ("AGX Xavier", {"GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"})
TOLD = {
    "agx-orin-32gb": ORIN,
    "agx-orin-64gb": ORIN,
    "orin-nx-16gb": SMALL,
    "orin-nano-8gb": SMALL,
    "xavier-nx-8gb": SMALL,
    "agx-xavier-16gb": XAVIER,
    "agx-xavier-32gb": XAVIER,
    "tx2": ("TX2", {"VDD_IN"}),
    "tx2-4gb": ("TX2", {"VDD_IN"}),
    "tx1": ("TX1 or TX2", {"VDD_IN"}),
    "nano-4gb": ("Nano", {"POM_5V_IN"}),
    "agx-thor": ("Thor", {"VIN"}),
}
# An early TX2 names its rails as a TX1 does; a Thor whose carrier has no sensor has no total.
OLD_TX2 = "TX1 or TX2"


@pytest.mark.parametrize("rule", rail_rules(), ids=lambda rule: rule.name)
def test_each_rule_is_found_by_its_own_rails(rule):
    """No rule stands behind one that takes its board away."""
    found = find_rail_rule(rule.rails)
    assert found is not None
    assert found.name == rule.name
    assert set(found.total) <= set(found.rails)


def test_tx2_nx_has_its_input_as_total():
    line = "RAM 1000/3833MB VDD_IN 4220/4220 VDD_CPU_GPU 640/640 VDD_SOC 1120/1120"
    rails = parse_line(line).rails
    rule = find_rail_rule(rails)
    assert rule is not None
    assert (rule.name, rule.total) == ("TX2 NX", ("VDD_IN",))
    assert set(rails) == {*rule.total, *rule.excluded}


def test_offset_of_a_sensor_is_that_of_its_data_sheet():
    """Of an INA3221 80 µV where a step is 40 µV, added over the rails of the total."""
    rules = {rule.name: rule for rule in rail_rules()}
    assert rules["AGX Orin"].offset_watts == pytest.approx(0.8 + 0.8 + 0.2)
    assert rules["Orin NX, Orin Nano or Xavier NX"].offset_watts == pytest.approx(0.08)
    # INA238 behind VIN, other shunts, another vendor's sensor: not known, which is not 0.
    assert {name for name, rule in rules.items() if rule.offset_watts is None} >= {
        "Thor",
        "NVIDIA GPU",
    }


def test_gpu_alone_is_no_jetson_and_no_jetson_is_a_gpu():
    """A rail of that name stands on boards too: only a line with no other is of a bare GPU."""
    gpu = find_rail_rule(["GPU"])
    assert gpu is not None
    assert gpu.name == "NVIDIA GPU"
    assert find_rail_rule(["GPU", "CPU"]) is None
    xavier = find_rail_rule(["GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"])
    assert xavier is not None
    assert xavier.name == "AGX Xavier"


@pytest.mark.parametrize("capture", sorted(CAPTURES.glob("*.txt")), ids=lambda path: path.stem)
def test_each_captured_board_has_its_own_total(capture):
    """Every line with rails gets the rule of its board, and no rail that another one holds."""
    board = capture.stem.partition("__")[0]
    for line in capture.read_text(encoding="utf-8").splitlines():
        rails = set(parse_line(line).rails)
        if board not in TOLD or not rails:
            continue
        rule = find_rail_rule(rails)
        if board == "agx-thor" and not {"VIN", "VDD_CPU_SOC_MSS"} <= rails:
            assert rule is None
            continue
        name, total = TOLD[board]
        assert rule is not None, rails
        assert rule.name == name or (board, rule.name) == ("tx2", OLD_TX2)
        assert set(rule.total) == total
        assert not set(rule.total) & set(rule.excluded)
        assert rails - {"NC"} <= set(rule.total) | set(rule.excluded)


def test_all_known_lines_of_a_board_are_of_one_rule():
    """In the collected lines no board is taken for another, and no total has a rail twice."""
    if not CORPUS.exists():
        pytest.skip("no ../shared/corpus/tegrastats beside this checkout")
    seen: dict[str, set[str]] = {}
    for entry in map(json.loads, CORPUS.read_text(encoding="utf-8").splitlines()):
        if entry["kind"] in ("log", "doc", "test-fixture") and entry["device"]:
            rule = find_rail_rule(parse_line(entry["line"]).rails)
            if rule is not None:
                seen.setdefault(entry["device"], set()).add(rule.name)
                assert not set(rule.total) & set(rule.excluded)
    together = {"TX2", "TX2/TX1/AGX Xavier (one line each)", "mixed"}
    assert seen["TX2"] == {"TX2", OLD_TX2}
    assert {device: rules for device, rules in seen.items() if len(rules) > 1}.keys() <= together
    assert seen["AGX Orin 32GB"] == seen["AGX Orin 64GB"] == {"AGX Orin"}


def test_an_incomplete_set_of_rails_has_no_total():
    """What is only part of a board is not added up: a line cut short, and a Thor without VIN."""
    assert find_rail_rule(["VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"]) is None
    assert find_rail_rule(["VDD_GPU_SOC", "VDD_CPU_CV"]) is None
    assert find_rail_rule(["VDD_CPU_GPU_CV", "VDD_SOC"]) is None
    assert find_rail_rule(["GPU", "CPU", "SOC", "CV", "VDDRQ"]) is None
    assert find_rail_rule([]) is None


@pytest.mark.parametrize(
    ("name", "watts"),
    [("AGX Xavier", 2 * (5 * 0.15 + 0.04)), ("TX2", 0.08), ("Nano", 0.08), ("TX2 NX", None)],
)
def test_offset_is_two_steps_of_each_rail_of_the_total(name, watts):
    """None where no source tells the steps."""
    rules = {rule.name: rule for rule in rail_rules()}
    if watts is None:
        assert rules[name].offset_watts is None
    else:
        assert rules[name].offset_watts == pytest.approx(watts)
