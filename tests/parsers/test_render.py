"""Records printed as a board would."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tegrascope.parsers.records import Core, Dla, Emc, Engine, Gpu, Rail, Ram, Sample
from tegrascope.parsers.tegrastats import parse_line, render_line
from tegrascope.parsers.tegrastats.prefix import read_prefix

CAPTURES = sorted((Path(__file__).parents[1] / "captures").glob("*__r36*.txt"))


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_r36_is_printed_byte_for_byte(capture):
    """AGX Orin, Orin NX and Orin Nano, as root or not: what was read is printed as it was."""
    for line in capture.read_text(encoding="utf-8").splitlines():
        record = read_prefix(line).rest
        assert render_line(parse_line(record)) == record


def test_every_capture_survives_being_printed(captured_lines):
    """Other releases are printed in the form of R36, with the same meaning."""
    for line in captured_lines:
        sample = replace(parse_line(line), unparsed=(), received=None)
        assert parse_line(render_line(sample)) == sample


@pytest.mark.parametrize(
    ("sample", "line"),
    [
        (Sample(), ""),
        (Sample(dla=(Dla(core=0, state="off"),)), "NVDLA0 off"),
        (
            Sample(
                engines={"VIC": Engine(state="off"), "PVA0": Engine(state="off")},
                dla=(
                    Dla(core=0, state="on", utilization_ratio=0.29, frequency_hertz=1_600_000_000),
                    Dla(core=1, state="on", frequency_hertz=1_600_000_000),
                ),
            ),
            "VIC off NVDLA0 29%@1600 NVDLA1_FREQ @1600 PVA0_FREQ off",
        ),
        (
            Sample(rails={"VDD_IN": Rail(instant_watts=1.0004, average_watts=2, maximum_watts=3)}),
            "VDD_IN 1000mW/2000mW/3000mW",
        ),
        (Sample(rails={"VDD_IN": Rail(instant_watts=5.139)}), "VDD_IN 5139mW"),
        (Sample(temperatures_celsius={"tj": 40.0, "CV0": None}), "tj@40C CV0@-256C"),
        (Sample(temperatures_celsius={"tj": -7.5004}), "tj@-7.5C"),
        (
            Sample(temperatures_celsius={"tj": 1.0}, temperatures_max_celsius={"tj": 54.062}),
            "tj@1C/54.062C",
        ),
        (
            Sample(ram=Ram(used_bytes=2**20 + 5, total_bytes=2**21)),
            "RAM 1/2MB",
        ),
        (
            Sample(gpu=Gpu(utilization_ratio=0.07, cluster_utilization_ratio=(0.07, 0.06))),
            "GR3D_FREQ 7% GR3D2_FREQ 6%",
        ),
    ],
)
def test_forms(sample, line):
    """Each state has its words; numbers are rounded to the units that are printed."""
    assert render_line(sample) == line


@pytest.mark.parametrize(
    "sample",
    [
        Sample(cpu=(Core(core=0, online=True),)),
        Sample(emc=Emc(utilization_ratio=0.5)),
        Sample(gpu=Gpu()),
        Sample(gpu=Gpu(utilization_ratio=0.5, cluster_utilization_ratio=(0.5,))),
        Sample(gpu=Gpu(utilization_ratio=0.5, cluster_utilization_ratio=(0.4, 0.5))),
        Sample(engines={"VIC": Engine(state="on")}),
        Sample(engines={"VIC": Engine(state="off", utilization_ratio=0.5)}),
        Sample(dla=(Dla(core=0),)),
        Sample(engines={"MTS_FG": Engine(state="off"), "MTS_BG": Engine(state="off")}),
    ],
)
def test_no_number_is_invented(sample):
    """What the format has no words for is an error, never a zero."""
    with pytest.raises(ValueError, match=r"."):
        render_line(sample)
