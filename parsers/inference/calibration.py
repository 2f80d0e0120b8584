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
_HEADER = re.compile(r"TRT-([0-9]{4,6})-([A-Za-z][A-Za-z0-9]*)", re.ASCII)
# A scale of 0 is one digit. Another with fewer than eight is the rest of a longer one.
_LINE = re.compile(r"(.+): ?([0-9a-fA-F]{8}|0)", re.ASCII)


class Preprocess(Record):
    """How an image becomes an input: ``(pixel * scale - mean) / std``, with pixels from 0 to 255.

    Attributes:
        resize: Length of the shorter side, of which the model's size is then cut from the middle;
            ``None`` stretches the image to the model's size.
        mean: One value, or one per channel; ``std`` likewise.
        channels: Their order; ``grey`` is one channel.
    """

    resize: PositiveInt | None = Field(None, le=16_384)
    scale: PositiveFloat = 1 / 255
    mean: tuple[float, ...] = Field((0.0,), min_length=1, max_length=3)
    std: tuple[PositiveFloat, ...] = Field((1.0,), min_length=1, max_length=3)
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    channels: Literal["rgb", "bgr", "grey"] = "rgb"


class CalibrationCache(Record):
    """The scales of a model's tensors: an int8 value times its scale is the real value.

    Attributes:
        release: Number of the TensorRT that made it, as in its header: ``8601`` is 8.6.1.
        algorithm: Name of the calibrator, as in its header: ``EntropyCalibration2`` ….
        scales: Tensor to scale, a 32-bit float; 0 for a tensor that is always 0.
    """

    release: int
    algorithm: str = ALGORITHMS["entropy"]
    scales: dict[str, float]

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
    r"""Parse the text of a calibration cache.

    Raises:
        UnreadableError: The text is not a cache, a line is damaged, a scale is not a finite number
            from 0 on, or a tensor occurs twice.

    >>> parse_calibration("TRT-8601-EntropyCalibration2\ndata: 3c010a14\n").scales
    {'data': 0.007875937968492508}
    """
    head, *lines = text.split("\n")
    found = _HEADER.fullmatch(head.strip())
    if found is None:
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
    return CalibrationCache(release=int(found[1]), algorithm=found[2], scales=scales)


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
    return struct.pack(">f", scale).hex() if scale else "0"
