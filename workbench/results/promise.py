"""What ``advise`` promises of a pipeline: ``promise.json``, which ``verify`` reads."""

from typing import Literal

from pydantic import PositiveFloat

from ...daemon.measure.report import Device, Figure
from ...parsers.inference.placement import Precision
from ...parsers.records import Record

PROMISE_FILE = "promise.json"


class PromisedModel(Record):
    """A model of the pipeline: where it is to run, and the result of bench that says so."""

    name: str
    device: Device
    precision: Precision | None = None
    variant: str = ""
    source: str


class Promise(Record):
    """What a pipeline does if its models run as advised.

    Attributes:
        frames_per_second: The highest rate of a model: each frame is an input of that one.
        loads: Mean loads by the names of telemetry: ``gpu``, and of each DLA core that is used.
        joules_per_frame: Of the whole module, with its idle power.
        simulated: Whether one of the results is of a simulated accelerator.
    """

    schema_version: Literal[1] = 1
    tegrascope: str
    models: tuple[PromisedModel, ...]
    frames_per_second: PositiveFloat
    loads: dict[str, Figure] = {}
    joules_per_frame: Figure | None = None
    simulated: bool = False
