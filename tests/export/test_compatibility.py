"""The pages with the metric names of other tools."""

import platform
import re
from dataclasses import replace
from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.export.compatibility import TOOLS, render
from tegrascope.daemon.export.snapshot import Snapshot, SourceState
from tegrascope.daemon.measure.report import Environment
from tegrascope.daemon.settings.config import Tool
from tegrascope.parsers.records import flatten
from tegrascope.parsers.tegrastats import parse_line

S = 1_000_000_000
LINE = (
    "11-21-2025 08:49:48 RAM 13983/62780MB (lfb 424x4MB) SWAP 126/31390MB (cached 0MB) "
    "CPU [90%@2201,10%@2201,off] EMC_FREQ 25%@2133 GR3D_FREQ 14%@[407,510] NVENC_LOAD 7% "
    "cpu@77.281C gpu@61.5C tj@80C "
    "VDD_GPU_SOC 3150mW/2971mW VDD_CPU_CV 14312mW/12415mW VIN_SYS_5V0 4968mW/5048mW"
)
RULE = find_rail_rule(("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"))


def snapshot(line=LINE, **environment):
    sample = parse_line(line)
    source = SourceState("simulator", 1.0, Stamped(100 * S, sample, 5000 * S), samples=1)
    return Snapshot(
        environment=Environment(**{"module": "Jetson AGX Orin", **environment}),
        sources=(source,),
        values=flatten(sample),
        module_joules=12_345_678.9,
    )


def values(page):
    """Return each value by name, as a scraper reads the page."""
    series = [one for family in text_string_to_metric_families(page) for one in family.samples]
    assert len({one.name for one in series}) == len(series)
    # The library adds this to the name of a counter.
    return {one.name.removesuffix("_total"): one.value for one in series}


def test_dcgm_page_has_the_units_of_dcgm():
    assert values(render("dcgm", snapshot(), 100 * S, RULE)) == pytest.approx(
        {
            "DCGM_FI_DEV_SM_CLOCK": 510,
            "DCGM_FI_DEV_MEM_CLOCK": 2133,
            "DCGM_FI_DEV_GPU_TEMP": 61.5,
            "DCGM_FI_DEV_POWER_USAGE": 3.150 + 14.312 + 4.968,
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 12_345_678_900,
            "DCGM_FI_DEV_GPU_UTIL": 14,
            "DCGM_FI_DEV_MEM_COPY_UTIL": 25,
            "DCGM_FI_DEV_ENC_UTIL": 7,
            "DCGM_FI_DEV_FB_USED": 13983,
            "DCGM_FI_DEV_FB_FREE": 62780 - 13983,
            "DCGM_FI_DEV_FB_TOTAL": 62780,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.14,
            "DCGM_FI_PROF_DRAM_ACTIVE": 0.25,
        }
    )


def test_used_and_free_memory_are_of_the_same_memory():
    """What the GPU holds of a Jetson's memory is not all that is in use of it."""
    shared = snapshot()
    shared = replace(shared, values={**shared.values, "gpu_memory.used_bytes": 1 << 30})
    own = replace(shared, values={**shared.values, "gpu_memory.total_bytes": 24 << 30})
    names = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_TOTAL")
    for board, expected in ((shared, (13983, 48797, 62780)), (own, (1024, 23552, 24576))):
        found = values(render("dcgm", board, 100 * S, RULE))
        assert tuple(found[name] for name in names) == expected


@pytest.mark.parametrize("tool", get_args(Tool))
def test_counters_keep_their_name(tool):
    page = render(tool, snapshot(), 100 * S, RULE)
    counters = [row.name for row in TOOLS[tool] if row.kind == "counter"]
    assert counters
    for name in counters:
        assert f"# TYPE {name} counter\n{name}{{" in page


@pytest.mark.parametrize("tool", get_args(Tool))
def test_unknown_values_have_no_series(tool):
    bare = replace(snapshot("RAM 100/200MB (lfb 1x4MB) CPU [1%@2,off]"), module_joules=None)
    found = values(render(tool, bare, 100 * S, None))
    assert 0 not in found.values()
    assert not [name for name in found if re.search("(?i)power|energy|gpu_util", name)]


@pytest.mark.parametrize("tool", get_args(Tool))
def test_power_is_absent_if_one_rail_of_the_total_is(tool):
    without = LINE.replace("VIN_SYS_5V0 4968mW/5048mW", "")
    found = values(render(tool, snapshot(without), 100 * S, RULE))
    assert found
    assert not [name for name in found if name.lower().endswith("power_usage")]


@pytest.mark.parametrize("tool", get_args(Tool))
def test_only_energy_stays_while_the_source_is_silent(tool):
    found = values(render(tool, snapshot(), 200 * S, RULE))
    assert [name.lower() for name in found if "energy" not in name.lower()] == []
    assert len(found) == 1


def test_labels_say_whose_power_it_is():
    page = render("dcgm", snapshot(module='Jetson "AGX"', simulated=True), 100 * S, RULE)
    (labels,) = {
        tuple(sorted(one.labels.items()))
        for family in text_string_to_metric_families(page)
        for one in family.samples
    }
    host = platform.node()
    assert dict(labels) == {
        "gpu": "0",
        "UUID": f"simulated-module-rails-{host}",
        "device": "module",
        "modelName": 'Jetson "AGX" (module rails) (simulated)',
        "Hostname": host,
        "hostname": host,
    }


def test_gpu_that_nvml_reads_keeps_its_uuid():
    page = render("dcgm", snapshot(gpu_uuid="GPU-123"), 100 * S, RULE)
    assert 'UUID="GPU-123"' in page
    assert "module-rails" not in page


def test_every_tool_of_the_configuration_has_a_page():
    assert set(TOOLS) == set(get_args(Tool))
