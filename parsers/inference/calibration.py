"""The text of a TensorRT calibration cache: one scale per tensor.

Source:
    "Calibration Cache", TensorRT Developer Guide of 8.x, and its ``sampleINT8``;
        public caches of 7.0 to 10.3.
"""

import math
import re
import struct
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from ..errors import UnreadableError
from ..records import Record

Method = Literal["entropy", "minmax"]
ALGORITHMS: Mapping[Method, str] = {
    "entropy": "EntropyCalibration2",
    "minmax": "MinMaxCalibration",
}
# Converters write the release as 8XXX; scales are of any release.
_HEADER = re.compile(r"TRT-([0-9]{4,6}|[0-9]{1,2}X{3,4})-([A-Za-z][A-Za-z0-9]*)", re.ASCII)
# The table of ONNX Runtime's quantiser: tensor, and the largest absolute value that was seen.
_RANGE = re.compile(
    r"(\S(?:.*\S)?) +([0-9]+(?:\.[0-9]+(?:e[-+]?[0-9]{1,3})?|e[-+]?[0-9]{1,3}))", re.ASCII
)
_LARGEST_INT8 = 127
# A scale of 0 is one digit. Another with fewer than eight is the rest of a longer one.
_LINE = re.compile(r"(.+): ?([0-9a-fA-F]{8}|0)", re.ASCII)


class Preprocess(Record):
    """How an image becomes an input: ``(pixel * scale - mean) / std``, with pixels from 0 to 255.

    Attributes:
        resize: Length of the shorter side, of which the model's size is then cut from the middle;
            ``None`` stretches the image to the model's size.
        letterbox: Whether the whole image is scaled into the model's size, and the rest is grey, as
            YOLO does it.
        mean: One value, or one per channel; ``std`` likewise.
        channels: Their order; ``grey`` is one channel.
    """

    resize: PositiveInt | None = Field(None, le=16_384)
    letterbox: bool = False
    scale: PositiveFloat = 1 / 255
    mean: tuple[float, ...] = Field((0.0,), min_length=1, max_length=3)
    std: tuple[PositiveFloat, ...] = Field((1.0,), min_length=1, max_length=3)
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    channels: Literal["rgb", "bgr", "grey"] = "rgb"


class CalibrationCache(Record):
    """The scales of a model's tensors: an int8 value times its scale is the real value.

    Attributes:
        release: Number of the TensorRT that made it, as in its header: ``8601`` is 8.6.1; 0 if that
            is not known.
        algorithm: Name of the calibrator, as in its header: ``EntropyCalibration2`` ….
        scales: Tensor to scale, a 32-bit float; 0 for a tensor that is always 0.
        origin: The program that wrote it, if that is not TensorRT.
    """

    release: int
    algorithm: str = ALGORITHMS["entropy"]
    scales: dict[str, float]
    origin: str | None = None

    @property
    def version(self) -> str:
        """The release as people write it."""
        base = 10_000 if self.release >= 100_000 else 1_000
        return f"{self.release // base}.{self.release % base // 100}.{self.release % 100}"

    def render(self) -> str:
        """Return the text that TensorRT reads; of a text that it wrote, the same text."""
        lines = (f"{name}: {_digits(scale)}\n" for name, scale in self.scales.items())
        return f"TRT-{self.release}-{self.algorithm}\n{''.join(lines)}"


def parse_calibration(text: str) -> CalibrationCache:
    r"""Parse the text of a calibration cache, or of the table that ONNX Runtime writes.

    That table has a value per tensor: the largest absolute value, which becomes 127 in int8.

    Raises:
        UnreadableError: The text is not a cache, a line is damaged, a scale is not a finite number
            from 0 on, or a tensor occurs twice.

    >>> parse_calibration("TRT-8601-EntropyCalibration2\ndata: 3c010a14\n").scales
    {'data': 0.007875937968492508}
    """
    head, *lines = text.split("\n")
    found = _HEADER.fullmatch(head.strip())
    if found is None:
        of_ranges = _read_ranges(text)
        if of_ranges is not None:
            return CalibrationCache(release=0, scales=of_ranges, origin="ONNX Runtime's quantiser")
        raise UnreadableError(f"it begins with {head[:60]!r}, not with TRT-NUMBER-ALGORITHM")
    scales: dict[str, float] = {}
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        entry = _LINE.fullmatch(line.rstrip())
        if entry is None:
            raise UnreadableError(f"line {number} is not a tensor and a scale: {line[:60]!r}")
        name, scale = entry[1], _float(entry[2])
        if not math.isfinite(scale) or math.copysign(1, scale) < 0:
            raise UnreadableError(f"line {number}: the scale of {name!r} is {scale}")
        if name in scales:
            raise UnreadableError(f"line {number}: {name!r} has a scale already")
        scales[name] = scale
    if not scales:
        raise UnreadableError("it has no scale")
    is_named = found[1].isdigit()
    return CalibrationCache(
        release=int(found[1]) if is_named else 0,
        algorithm=found[2],
        scales=scales,
        origin=None if is_named else f"a converter ({found[0]})",
    )


def _read_ranges(text: str) -> dict[str, float] | None:
    """Return the scales of ONNX Runtime's table, or None if any line is not of it.

    The form is plain, so one line of another form makes the whole text another one.
    """
    scales: dict[str, float] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        entry = _RANGE.fullmatch(line.rstrip())
        if entry is None or entry[1] in scales:
            return None
        scale = float(entry[2]) / _LARGEST_INT8
        try:
            scales[entry[1]] = _float(_digits(scale))
        except OverflowError:
            return None
    return scales or None


def release_number(version: str) -> int:
    """Return the number of a TensorRT release, as the header of a cache has it.

    >>> release_number("8.6.1"), release_number("10.3.0.26")
    (8601, 100300)
    """
    major, minor, patch, *_ = (*(int(part) for part in re.findall(r"[0-9]+", version)), 0, 0, 0)
    return major * (1_000 if major < 10 else 10_000) + minor * 100 + patch


def _float(digits: str) -> float:
    value: float = struct.unpack(">f", bytes.fromhex(digits.zfill(8)))[0]
    return value


def _digits(scale: float) -> str:
    if not scale:
        return "0"
    return struct.pack(">f", scale).hex()
