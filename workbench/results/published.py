"""Published results, from ``published.toml``, and the one that is most like an own result."""

import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import HttpUrl, PositiveInt

from ...collectors.models.files import BUILTIN_PREFIX
from ...parsers.inference.placement import Precision
from ...parsers.records import Record

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Unit = Literal["ms", "ns", "fps", "qps", "watts"]
_SECONDS: Mapping[str, float] = {"ms": 1e-3, "ns": 1e-9}


class PublishedResult(Record):
    """One published figure; a condition that its source does not state is ``None``.

    Attributes:
        model: As the source prints it; ``family`` is the name by which files are matched.
        statistic: Statistic of the latency; ``None`` if the source does not say.
        printed: The numbers as they stand in ``quote``, by unit.
        address: Address of the text that was read.
        dla_cores: DLA cores that worked together; ``None`` without a DLA.
        input: Height and width of the input, as ``224x224``.
        transfers: Whether the time contains the copies of inputs and outputs.
    """

    title: str
    address: HttpUrl
    quote: str
    printed: dict[Unit, str]
    model: str
    family: str
    device: Literal["gpu", "dla", "gpu+dla"]
    board: str | None = None
    mode: str | None = None
    dla_cores: PositiveInt | None = None
    precision: Precision | None = None
    input: str | None = None
    batch: PositiveInt | None = None
    clocks_locked: bool | None = None
    transfers: bool | None = None
    cuda_graph: bool | None = None
    streams: PositiveInt | None = None
    jetpack: str | None = None
    method: str | None = None
    statistic: Literal["mean", "p50", "p90", "p99"] | None = None
    tensorrt: str | None = None
    note: str | None = None

    @property
    def latency_seconds(self) -> float | None:
        """Time of an inference of the whole batch."""
        for unit, text in self.printed.items():
            if unit in _SECONDS:
                return float(text) * _SECONDS[unit]
        return None

    @property
    def throughput_per_second(self) -> float | None:
        """Inputs per second."""
        if "qps" in self.printed:
            return float(self.printed["qps"]) * (self.batch or 1)
        return float(self.printed["fps"]) if "fps" in self.printed else None

    @property
    def watts(self) -> float | None:
        """Mean power, by the source's own method."""
        return float(self.printed["watts"]) if "watts" in self.printed else None


# --- the data -------------------------------------------------------------------------------------


@cache
def published() -> tuple[PublishedResult, ...]:
    """Return all rows; a row has what its quote and its source have in common."""
    made = []
    for source in _data()["source"]:
        for quote in source.pop("quotes"):
            address, rows = source["address"] + quote.pop("path", ""), quote.pop("rows")
            for row in rows:
                one = {**source, **quote, **row, "address": address}
                one.setdefault("family", _plain(one["model"]))
                if one["device"] == "dla":
                    one.setdefault("dla_cores", 1)
                made.append(PublishedResult.model_validate(one))
    return tuple(made)


def _data() -> dict[str, Any]:
    path = Path(__file__).with_suffix(".toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def _families() -> dict[str, str]:
    """Return the family of each known name."""
    families = {row.family: row.family for row in published()}
    for family, names in _data()["aliases"].items():
        families.update(dict.fromkeys(names, family))
    return families


# Parts of a file's name that tell its form, and not the model.
_FORM = re.compile(r"fp32|fp16|int8|half|qdq|dynamic|static|sim|prepared|(b|bs|batch|opset)\d+")


def family_of(model: str) -> str | None:
    """Return the family of a model by its name alone; ``None`` if nothing is published of it.

    >>> family_of("builtin:resnet50-fp16"), family_of("nets/resnet50-v2-7.onnx")
    ('resnet50', 'resnet50')
    >>> family_of("fcn-resnet50.onnx")
    """
    return _families().get(_plain(Path(model.removeprefix(BUILTIN_PREFIX)).stem))


def _plain(name: str) -> str:
    words = re.split(r"[^a-z0-9]+", name.lower().removesuffix(".onnx"))
    return "".join(word for word in words if not _FORM.fullmatch(word))


# --- the nearest ----------------------------------------------------------------------------------

_BOARD = re.compile(r"agx|orin|xavier|thor|nx|nano|super|tx[12]|drive|[24-9]gb|\d\dgb|t[45]000")
_CHIPS = {"orin", "xavier", "thor", "tx1", "tx2"}


def board_words(board: str | None) -> frozenset[str]:
    """Return the words that tell a Jetson from others; none for another machine.

    >>> sorted(board_words("NVIDIA Jetson AGX Orin Developer Kit")), board_words("NVIDIA H100 80GB")
    (['agx', 'orin'], frozenset())
    """
    words = set(_BOARD.findall((board or "").lower().replace(" gb", "gb")))
    if "nano" in words and not words & _CHIPS:
        words.add("first")  # the Jetson Nano is not an Orin Nano
    return frozenset(words if words & {*_CHIPS, "first"} else ())


def _is_same_board(one: str, other: str) -> bool:
    """Return whether neither says what the other contradicts, as ``Orin`` and ``AGX Orin``."""
    first, second = board_words(one), board_words(other)
    return first <= second or second <= first


def _mode(name: str) -> str:
    return re.sub(r"mode|[^a-z0-9]", "", name.lower())


def is_same(name: str, one: Any, other: Any) -> bool | None:
    """Return whether two values of a condition agree; ``None`` if one of them is unknown."""
    if one is None or other is None:
        return None
    if name == "board":
        return _is_same_board(one, other)
    if name == "mode":
        return _mode(one) == _mode(other)
    if name == "input":
        return sorted(one.split("x")) == sorted(other.split("x"))
    return bool(one == other)


_NEAREST = ("dla_cores", "precision", "batch", "board", "mode")


def nearest(model: str, device: str, **own: object) -> PublishedResult | None:
    """Return the published result of the same family and kind of device that is most alike.

    Precision counts most, then batch, board and power mode; DLA cores come first. A condition that
    a source does not state counts as different. The first of equal rows is returned.

    Args:
        model: The own model, as its file is named.
        device: Its accelerator.
        own: The conditions of the own measurement, by their names in ``PublishedResult``.
    """
    family, kind = family_of(model), device.rstrip("01")

    def distance(row: PublishedResult) -> list[bool]:
        return [not is_same(name, getattr(row, name), own.get(name)) for name in _NEAREST]

    rows = [row for row in published() if row.family == family and row.device == kind]
    return min(rows, key=distance, default=None)
