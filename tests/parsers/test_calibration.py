"""The text of a calibration cache, both ways."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.parsers.errors import UnreadableError
from tegrascope.parsers.inference.calibration import (
    CalibrationCache,
    parse_calibration,
    release_number,
)

# The lines of NVIDIA's sample, and names as later caches have them.
SAMPLE = (
    "TRT-7000-EntropyCalibration2\ndata: 3c008912\nconv1: 3c88edfc\n"
    "(Unnamed Layer* 64) [Shuffle]_output: 0\ninput_1:0: 3ddc858b\nblock/a b: 40b7daf4\n"
)


def test_scales_are_read_and_written_to_the_bit():
    found = parse_calibration(SAMPLE)
    assert (found.version, found.algorithm) == ("7.0.0", "EntropyCalibration2")
    assert found.scales["data"] == struct.unpack(">f", bytes.fromhex("3c008912"))[0]
    assert found.scales["(Unnamed Layer* 64) [Shuffle]_output"] == 0
    assert found.scales["input_1:0"] == pytest.approx(0.10767669, rel=1e-6)
    assert found.render() == SAMPLE


@given(
    st.dictionaries(
        st.text("abc/:* ()[]._0", min_size=1).filter(str.strip),
        st.floats(min_value=0, width=32, allow_nan=False, allow_infinity=False).map(abs),
        min_size=1,
    )
)
def test_every_scale_survives(scales):
    text = CalibrationCache(release=8601, scales=scales).render()
    assert parse_calibration(text).scales == scales
    assert parse_calibration(text.replace("\n", "\r\n")).render() == text


@pytest.mark.parametrize("header", ["TRT-8XXX-EntropyCalibration2", "TRT-10XXX-MinMaxCalibration"])
def test_header_of_a_converter_names_no_release(header):
    """Its scales are those of any release."""
    found = parse_calibration(f"{header}\ndata: 3c008912\n")
    assert found.scales == {"data": parse_calibration(SAMPLE).scales["data"]}
    assert (found.release, found.algorithm) == (0, header.rpartition("-")[2])
    assert header in found.origin


def test_table_of_onnx_runtime_has_the_value_that_becomes_127():
    table = "data 2.640000104904175\nconv 1/a b:0 1e-05\nalways 0.0\r\n\n"
    found = parse_calibration(table)
    assert found.origin == "ONNX Runtime's quantiser"
    assert found.scales["data"] == pytest.approx(2.640000104904175 / 127, rel=1e-7)
    assert found.scales["conv 1/a b:0"] == pytest.approx(1e-05 / 127, rel=1e-7)
    assert found.scales["always"] == 0
    assert parse_calibration(found.render().replace("TRT-0-", "TRT-8601-")).scales == found.scales


@pytest.mark.parametrize(
    "text",
    ["hello world 5\n", "data 2.5\ndata 2.5\n", "data 2.5\nnoise\n", "data -2.5\n", "x 9.0e99"],
)
def test_text_that_is_nearly_such_a_table_is_refused(text):
    with pytest.raises(UnreadableError, match="begins with"):
        parse_calibration(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with ''"),
        ("# TensorRT\ndata: 3c008912\n", "begins with '# TensorRT'"),
        ("TRT-8601-EntropyCalibration2\n", "no scale"),
        ("TRT-8601-EntropyCalibration2\ndata 3c008912\n", "line 2 is not"),
        ("TRT-8601-EntropyCalibration2\ndata: 3c00891\u0662\n", "line 2 is not"),
        ("TRT-8601-EntropyCalibration2\ndata: 3c0089123\n", "line 2 is not"),
        ("TRT-8601-EntropyCalibration2\na: 3c008912\nb: 7fc00000\n", "line 3: the scale .* nan"),
        ("TRT-8601-EntropyCalibration2\na: 7f800000\n", "inf"),
        ("TRT-8601-EntropyCalibration2\na: bc008912\n", "-0.0"),
        ("TRT-8601-EntropyCalibration2\na: 0\na: 0\n", "already"),
        ("TRT-8601-EntropyCalibration2\nb: 0\na: 3c0089", "line 3 is not"),
    ],
)
def test_damage_is_reported_with_its_line(text, reason):
    with pytest.raises(UnreadableError, match=reason):
        parse_calibration(text)


@pytest.mark.parametrize(
    ("version", "number"), [("8.5.2", 8502), ("8.6.1.6", 8601), ("10.3.0", 100300), ("8.6", 8600)]
)
def test_release_is_numbered_as_in_headers(version, number):
    assert release_number(version) == number
    made = CalibrationCache(release=number, scales={"a": 1.0})
    assert made.version == ".".join([*version.split("."), "0"][:3])
