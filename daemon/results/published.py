"""Published results, from ``published.toml``, and how one of them differs from an own result."""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import HttpUrl, PositiveInt

from ...collectors.models.files import BUILTIN_PREFIX
from ...parsers.inference.placement import Precision
from ...parsers.records import Record
from ...parsers.values import DLAS
from ..terminal import percent, rate, seconds
from .records import AcceleratorResult, BenchResult, ModelResult

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# A larger difference gets its first suspected cause.
LARGE_DIFFERENCE = 0.2
Unit = Literal["ms", "ns", "fps", "qps", "watts"]
_SECONDS: Mapping[str, float] = {"ms": 1e-3, "ns": 1e-9}
_YES_NO = {True: "yes", False: "no"}


class Conditions(Record):
    """Circumstances of a figure, in the order in which they are suspected; ``None`` is unknown.

    Attributes:
        dla_cores: DLA cores that worked together; ``None`` without a DLA.
        input: Height and width of the input, as ``224x224``.
        transfers: Whether the time contains the copies of inputs and outputs.
    """

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


class PublishedResult(Conditions):
    """One published figure.

    Attributes:
        model: As the source prints it; ``family`` is the name by which files are matched.
        statistic: Statistic of the latency; ``None`` if the source does not say.
        printed: The numbers as they stand in ``quote``, by unit.
        address: Address of the text that was read.
    """

    title: str
    address: HttpUrl
    quote: str
    printed: dict[Unit, str]
    model: str
    family: str
    device: Literal["gpu", "dla", "gpu+dla"]
    method: str | None = None
    statistic: Literal["mean", "p50", "p90", "p99"] | None = None
    tensorrt: str | None = None
    note: str | None = None

    @property
    def latency_seconds(self) -> float | None:
        """Time of an inference of the whole batch."""
        found = (float(text) * _SECONDS[u] for u, text in self.printed.items() if u in _SECONDS)
        return next(found, None)

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


class Difference(NamedTuple):
    """A known difference of two results; ``name`` is a field of ``Conditions``."""

    name: str
    published: object
    own: object

    def __str__(self) -> str:
        words = (
            _YES_NO[one] if isinstance(one, bool) else one for one in (self.published, self.own)
        )
        return "{} (published {}, yours {})".format(_TITLES.get(self.name, self.name), *words)


class Beside(NamedTuple):
    """A published result beside that of an accelerator; ``label`` is the figure's row."""

    device: str
    row: PublishedResult
    own: Conditions
    label: str
    published_value: float
    own_value: float

    def show(self, value: float) -> str:
        """Format a value of the figure."""
        return rate(value) if self.label == "throughput" else seconds(value)


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
    aliases = _data()["aliases"]
    known = {row.family: row.family for row in published()}
    return known | {name: family for family, names in aliases.items() for name in names}


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


# --- differences ----------------------------------------------------------------------------------

_TITLES = {
    "mode": "power mode",
    "dla_cores": "DLA cores",
    "input": "input size",
    "clocks_locked": "locked clocks",
    "transfers": "copies in the time",
    "cuda_graph": "CUDA graph",
    "jetpack": "JetPack",
}
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


def differences(published: Conditions, own: Conditions) -> tuple[Difference, ...]:
    """Return what is known to differ, the first suspected cause first."""
    pairs = ((n, getattr(published, n), getattr(own, n)) for n in Conditions.model_fields)
    return tuple(Difference(*pair) for pair in pairs if is_same(*pair) is False)


_NEAREST = ("dla_cores", "precision", "batch", "board", "mode")


def nearest(model: str, device: str, own: Conditions) -> PublishedResult | None:
    """Return the published result of the same family and kind of device that is most alike.

    Precision counts most, then batch, board and power mode. A condition that a source does not
    state counts as different. The first of equal rows is returned.
    """
    family, kind = family_of(model), device.rstrip("01")

    def distance(row: PublishedResult) -> list[bool]:
        return [not is_same(name, getattr(row, name), getattr(own, name)) for name in _NEAREST]

    rows = [row for row in published() if row.family == family and row.device == kind]
    return min(rows, key=distance, default=None)


# --- beside a benchmark ---------------------------------------------------------------------------


def conditions_of(one: AcceleratorResult, model: ModelResult, bench: BenchResult) -> Conditions:
    """Return the conditions of an accelerator's result, by what was really built."""
    built, settings, board = one.built, bench.settings, bench.environment
    types = {} if built is None else built.layer_types
    most = max(types, key=lambda name: types[name], default=settings.precision)
    shapes = (run.input_shapes for run in model.rounds if run.device == one.device)
    shape = next((size for found in shapes for size in found.values() if len(size) == 4), None)
    return Conditions(
        board=board.board,
        mode=settings.power_mode or board.power_mode,
        dla_cores=1 if one.device in DLAS else None,
        precision=most if most in ("fp32", "fp16", "int8") else None,
        input=None if shape is None else _size(shape),
        batch=settings.batch,
        clocks_locked=board.clocks_locked,
        transfers=settings.transfers if built is None else built.has_transfers,
        cuda_graph=None if built is None else built.has_cuda_graph,
        streams=settings.streams,
        jetpack=board.jetpack,
    )


def _size(shape: Sequence[int]) -> str:
    """Return height and width, whichever of the other sides has the channels."""
    sides = shape[2:] if shape[1] < shape[3] else shape[1:3]
    return "x".join(map(str, sides))


def beside(model: ModelResult, bench: BenchResult) -> list[Beside]:
    """Return the nearest published result of each accelerator that was measured on a Jetson."""
    if bench.is_simulated or not board_words(bench.environment.board):
        return []
    found = []
    for one in model.accelerators:
        own = conditions_of(one, model, bench)
        row = nearest(model.model, one.device, own)
        pair = None if row is None else _pair(row, one)
        if row is not None and pair is not None:
            found.append(Beside(one.device, row, own, *pair))
    return found


def _pair(row: PublishedResult, one: AcceleratorResult) -> tuple[str, float, float] | None:
    """Return the name of the figure, and its published and own value."""
    latency, statistic = row.latency_seconds, row.statistic
    if latency is not None and statistic in ("p90", "p99") and one.latency is not None:
        return f"latency {statistic}", latency, getattr(one.latency, f"{statistic}_seconds")
    if latency is not None and statistic in (None, "mean", "p50") and one.latency_seconds:
        return "latency p50", latency, one.latency_seconds.value
    if row.throughput_per_second is not None and one.throughput_per_second is not None:
        return "throughput", row.throughput_per_second, one.throughput_per_second.value
    return None


def sentence(one: Beside) -> str:
    """Return both results, by how much they differ, and the conditions that differ."""
    change = one.own_value / one.published_value - 1
    words = (
        f"published {one.show(one.published_value)} ({_words(one.row.model, one.row)}); yours"
        f" {one.show(one.own_value)} ({_words(None, one.own)}):"
        f" {percent(abs(change))} {'more' if change >= 0 else 'less'}"
    )
    differing = list(map(str, differences(one.row, one.own)))
    if abs(change) > LARGE_DIFFERENCE:
        cause, *differing = differing or ["no known difference"]
        words += f"; first suspected cause: {cause}"
    if differing:
        words += f"; also different: {', '.join(differing)}"
    # Without a scheme: a page has no address that a browser could load.
    return f"{words}; source: {str(one.row.address).removeprefix('https://')}"


def _words(model: str | None, of: Conditions) -> str:
    batch = None if of.batch is None else f"batch {of.batch}"
    return ", ".join(filter(None, (model, of.board, of.mode, of.precision, batch)))
