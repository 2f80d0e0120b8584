"""Power modes of a board's own file: names, caps, and which mode is the largest."""

import pytest

from tegrascope.parsers.nvpmodel import (
    find_mode,
    largest_mode,
    mode_in_answer,
    parse_modes,
    wants_reboot,
)


def mode(number: int, name: str, cores: int, cpu: int, gpu: int, emc: int) -> str:
    """Return a mode as the file of a board with six cores has it; clocks are in MHz."""
    mega = {value: value * 10**6 if value > 0 else value for value in (cpu, gpu, emc)}
    return "\n".join(
        (
            f"< POWER_MODEL ID={number} NAME={name} >",
            *(f"CPU_ONLINE CORE_{core} {int(core < cores)}" for core in range(6)),
            "FBP_POWER_GATING FBP_PG_MASK 2",
            "CPU_A78_0 MIN_FREQ 729600000",
            f"CPU_A78_0 MAX_FREQ {mega[cpu]}",
            "GPU MIN_FREQ 0",
            f"GPU MAX_FREQ {mega[gpu]}",
            "# EMC MAX_FREQ 1",
            f"EMC MAX_FREQ {mega[emc]}",
        )
    )


HEAD = """# a comment of < POWER_MODEL ID=7 NAME=NO >
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_0 /sys/devices/system/cpu/cpu0/online
< PARAM TYPE=CLOCK NAME=GPU >
MAX_FREQ /sys/class/devfreq/17000000.gpu/max_freq
"""
FOOT = "\n< PM_CONFIG DEFAULT=1 >\n< FAN_CONFIG DEFAULT=quiet >\n"
# On an Orin Nano Super mode 0 is 15 W.
NANO_SUPER = HEAD + "\n".join(
    (
        mode(0, "15W", 6, 1497, 612, 2133),
        mode(1, "25W", 6, 1344, 918, 3199),
        mode(2, "MAXN_SUPER", 6, -1, -1, 0),
        mode(3, "7W", 4, 960, 408, 2133),
    )
) + FOOT  # fmt: skip
# On other boards it is the largest, whatever its name.
ORIN = HEAD + mode(0, "MAXN", 6, -1, -1, 0) + "\n" + mode(1, "MODE_15W", 4, 1113, 420, 2133) + FOOT
# A mode with fewer cores has the faster ones: the sum of all caps decides.
XAVIER = HEAD + "\n".join(
    (mode(0, "15W_2CORE", 2, 1907, 1109, 1600), mode(8, "20W_6CORE", 6, 1420, 1109, 1866))
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "number"),
    [(NANO_SUPER, 2), (ORIN, 0), (XAVIER, 8)],
    ids=["orin-nano-super", "orin", "xavier-nx"],
)
def test_largest_mode_has_the_highest_caps_of_the_file(text, number):
    assert largest_mode(parse_modes(text)).number == number


def test_file_with_names_only_has_the_mode_named_maxn():
    modes = parse_modes("< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >")
    assert largest_mode(modes).number == 2
    assert largest_mode(modes[:1]) is None
    assert largest_mode([]) is None


def test_rows_of_an_unreadable_mode_are_not_those_of_the_mode_before():
    text = (
        "< POWER_MODEL ID=0 NAME=15W >\nGPU MAX_FREQ 100\n"
        "< POWER_MODEL ID=x NAME=BROKEN >\nGPU MAX_FREQ 900\n"
        "< POWER_MODEL ID=2 NAME=30W >\nnonsense\nGPU MAX_FREQ 300\n"
    )
    caps = {mode.name: mode.caps for mode in parse_modes(text)}
    assert caps == {"15W": {("GPU", "MAX_FREQ"): 100}, "30W": {("GPU", "MAX_FREQ"): 300}}


def test_modes_are_found_by_number_and_by_name():
    modes = parse_modes(NANO_SUPER)
    assert [(one.number, one.name) for one in modes] == [
        (0, "15W"), (1, "25W"), (2, "MAXN_SUPER"), (3, "7W"),
    ]  # fmt: skip
    assert find_mode(modes, "25W") == find_mode(modes, "1") == modes[1]
    assert find_mode(modes, "MAXN") is None
    assert find_mode(modes, "01") is None


def test_answers_of_the_program_are_read():
    assert mode_in_answer("NV Power Mode: 15W\n0\n") == 0
    assert mode_in_answer("NVPM ERROR: optMask is 1, no request for power mode") is None
    refused = (
        "NVPM WARN: Reboot required for changing to this power mode: 2\nNVPM ERROR: bad input!"
    )
    assert wants_reboot(refused)
    assert not wants_reboot("NV Power Mode: MAXN\n0")
