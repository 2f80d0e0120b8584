"""A sample as named numbers."""

from tegrascope.parsers.records import flatten
from tegrascope.parsers.tegrastats import parse_line


def test_every_number_has_a_name_of_its_own():
    """No two fields share a path, and no field of a full line is without one."""
    named = flatten(
        parse_line(
            "RAM 1/2MB (lfb 3x4MB) SWAP 5/6MB (cached 7MB) IRAM 8/9kB(lfb 10kB) "
            "CPU [11%@12,off] EMC_FREQ 13%@14 GR3D_FREQ 15%@16 GR3D2_FREQ 17%@18 "
            "VIC 19%@20 NVDLA1 21%@22 EDP limit 23 tj@24C/25C VDD_IN 26mW/27mW/28mW"
        )
    )
    mebi, mega = 2**20, 10**6
    assert named == {
        "ram.used_bytes": mebi,
        "ram.total_bytes": 2 * mebi,
        "ram.largest_free_block_count": 3,
        "ram.largest_free_block_bytes": 4 * mebi,
        "swap.used_bytes": 5 * mebi,
        "swap.total_bytes": 6 * mebi,
        "swap.cached_bytes": 7 * mebi,
        "iram.used_bytes": 8 * 1024,
        "iram.total_bytes": 9 * 1024,
        "iram.largest_free_block_bytes": 10 * 1024,
        "cpu.0.online": 1,
        "cpu.0.utilization_ratio": 0.11,
        "cpu.0.frequency_hertz": 12 * mega,
        "cpu.1.online": 0,
        "emc.utilization_ratio": 0.13,
        "emc.frequency_hertz": 14 * mega,
        "gpu.utilization_ratio": 0.15,
        "gpu.frequency_hertz.0": 16 * mega,
        "gpu.frequency_hertz.1": 18 * mega,
        "gpu.cluster_utilization_ratio.0": 0.15,
        "gpu.cluster_utilization_ratio.1": 0.17,
        "engines.VIC.on": 1,
        "engines.VIC.utilization_ratio": 0.19,
        "engines.VIC.frequency_hertz": 20 * mega,
        "dla.1.on": 1,
        "dla.1.utilization_ratio": 0.21,
        "dla.1.frequency_hertz": 22 * mega,
        "edp_limit_hertz": 23 * mega,
        "temperatures_celsius.tj": 24.0,
        "temperatures_max_celsius.tj": 25.0,
        "rails.VDD_IN.instant_watts": 0.026,
        "rails.VDD_IN.average_watts": 0.027,
        "rails.VDD_IN.maximum_watts": 0.028,
    }


def test_what_is_not_said_has_no_name():
    """Unknown is absent, while off is a zero of its own."""
    named = flatten(parse_line("RAM 1/2MB EMC_FREQ 0% NVDLA0_LOAD 0% NVDLA1 off CV0@-256C"))
    assert set(named) == {
        "ram.used_bytes",
        "ram.total_bytes",
        "dla.0.utilization_ratio",
        "dla.1.on",
    }
    assert named["dla.1.on"] == 0
