"""The paces of the simulated accelerators: published times, and latencies drawn around them."""

import math
import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from ...parsers.errors import UserError
from ...parsers.inference.placement import Placement, Precision
from ...parsers.values import some_of
from .physics import lane_kind

# So many latencies together have the distribution of the pace, in an order drawn at random: the
# percentiles of a run are those of the pace, and no rhythm is in them.
_BLOCK = 200
# Of an exponential distribution in units of its median, less 1: its mean, and two percentiles.
_MEAN = 1 / math.log(2) - 1
_P90 = math.log2(10) - 1
_P99 = math.log2(100) - 1


class Pace(msgspec.Struct, frozen=True):
    """How fast one model runs on one kind of device; see ``paces.toml``."""

    model: str
    device: Literal["gpu", "dla"]
    precision: Precision
    batch: int
    milliseconds: float
    statistic: Literal["typical", "mean", "p90"]
    tail: float
    loads: dict[str, float]
    title: str
    address: str
    dla_layers: tuple[str, ...] = ()
    gpu_layers: tuple[str, ...] = ()
    reformat_layers: tuple[str, ...] = ()

    @property
    def tail_unit(self) -> float:
        """What a unit of the exponential adds to the median, in medians."""
        return (self.tail - 1) / _P99

    @property
    def p50_ns(self) -> float:
        """The median latency."""
        above = {"typical": 0.0, "mean": _MEAN, "p90": _P90}[self.statistic]
        return self.milliseconds * 1e6 / (1 + above * self.tail_unit)

    @property
    def p99_ns(self) -> float:
        """The latency that one inference of a hundred exceeds."""
        return self.p50_ns * self.tail

    @property
    def mean_ns(self) -> float:
        """The mean latency."""
        return self.p50_ns * (1 + _MEAN * self.tail_unit)

    @property
    def placement(self) -> Placement:
        """Where the layers are."""
        if self.gpu_layers:
            return Placement(
                verdict="mixed",
                loadables=len(self.dla_layers),
                dla_layers=self.dla_layers,
                gpu_layers=self.gpu_layers,
                reformat_layers=self.reformat_layers,
            )
        if self.device == "gpu":
            return Placement(verdict="gpu_only", gpu_layers=(self.model,))
        return Placement(
            verdict="dla_plus_reformat",
            loadables=1,
            dla_layers=(self.model,),
            reformat_layers=("reformat_in", "reformat_out"),
        )

    def loads_of(self, device: str) -> Mapping[str, float]:
        """Return the share of its time in which an inference on a device keeps each lane busy."""
        loads = {}
        for lane, ratio in self.loads.items():
            loads[device if lane == lane_kind(device) else lane] = ratio
        return loads

    def latencies_ns(self, seed: str) -> Iterator[float]:
        """Yield latencies without an end: each block of 200 has the distribution of the pace.

        It is an exponential one above the shortest latency.
        """
        chance = random.Random(seed)
        block = []
        for number in range(_BLOCK):
            above = -math.log2(1 - (number + 0.5) / _BLOCK) - 1
            block.append(self.p50_ns * (1 + self.tail_unit * above))
        while True:
            chance.shuffle(block)
            yield from block


class _Paces(msgspec.Struct, frozen=True):
    board: str
    pace: tuple[Pace, ...]


@cache
def _read() -> _Paces:
    data = Path(__file__).with_name("paces.toml").read_bytes()
    return msgspec.toml.decode(data, type=_Paces)


def all_paces() -> tuple[Pace, ...]:
    """Return every pace."""
    return _read().pace


def paced_board() -> str:
    """Return the simulated board that has paces."""
    return _read().board


def paced_name(model: str) -> str:
    """Return the name by which a model has a pace: that of its file, or of a built-in model.

    >>> paced_name("builtin:resnet50"), paced_name("/opt/models/model_gn.onnx")
    ('resnet50', 'model_gn')
    """
    return Path(model.removeprefix("builtin:")).stem


def find_pace(model: str, device: str, precision: Precision | None, batch: int) -> Pace:
    """Return the pace of a model on a device, or raise ``UserError``: none is guessed.

    Without a precision it is the first that is known.
    """
    name = paced_name(model)
    of_model = [pace for pace in all_paces() if pace.model == name]
    if not of_model:
        known = ", ".join(dict.fromkeys(pace.model for pace in all_paces()))
        raise UserError(
            f"no pace of {name} is known, so no accelerator can be simulated with it",
            f"use one of {known}; on cpu a model is really run",
        )
    for pace in of_model:
        is_precision = precision in (None, pace.precision)
        if pace.device == lane_kind(device) and is_precision and pace.batch == batch:
            return pace
    wanted = f"{precision or 'any precision'}, batch {batch}"
    ways = [f"{pace.device} in {pace.precision}, batch {pace.batch}" for pace in of_model]
    raise UserError(f"no pace of {name} is known on {device} in {wanted}", f"use {some_of(ways)}")
