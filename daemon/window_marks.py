"""What an application says of its own inference: a window begins, ends, or took place."""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError
from pydantic import model_validator as _model_validator

from ..parsers.errors import Mendable
from ..parsers.records import Record
from ..parsers.run_events import StageName
from .run_report import Device

# Ten thousand times of start, end and three stages are 600 KB of JSON.
TIMES_AT_MOST = 10_000
BODY_AT_MOST = 1024 * 1024
_LONGEST_SECONDS = 3600.0

# What an array of 64 bits holds, with room for a sum of two.
_Nanoseconds = Annotated[int, Field(ge=0, lt=1 << 62)]
_Times = Annotated[tuple[_Nanoseconds, ...], Field(max_length=TIMES_AT_MOST)]

M = TypeVar("M", bound=Record)


class Refusal(Mendable):
    """A mark that is not taken, with the HTTP status that says so."""

    def __init__(self, status: int, what: str, mend: str) -> None:
        super().__init__(what, mend)
        self.status = status


class Begin(Record):
    """The window begins.

    Attributes:
        workload: Name of a workload with ``backend: window``.
        device: The application's idea of where it runs, refused where it is not the configured
            one.
        batch: Inputs an inference; the workload's where it is not said.
        begin_ns: When, on CLOCK_MONOTONIC; now where it is not said.
        timeout_seconds: Without an end after so long the window is closed as failed; the
            workload's where it is not said.
    """

    event: Literal["begin"]
    workload: str
    device: Device | None = None
    batch: PositiveInt | None = None
    begin_ns: _Nanoseconds | None = None
    timeout_seconds: Annotated[PositiveFloat, Field(le=_LONGEST_SECONDS)] | None = None


class Content(Record):
    """What took place in a window.

    Attributes:
        inferences: How many were complete in it; ``None`` where nobody counted, else not fewer
            than were timed.
        outcome: How it ended.
        reason: Why, for every outcome but ``ok``.
        start_ns: shape (n,), when those that were timed started, on CLOCK_MONOTONIC.
        latency_ns: shape (n,), how long each took.
        stages_ns: Stage to shape (m,), how long each took that was timed.
    """

    inferences: Annotated[NonNegativeInt, Field(le=10**12)] | None = None
    outcome: Literal["ok", "failed", "cancelled"] = "ok"
    reason: Annotated[str, Field(max_length=400)] | None = None
    start_ns: _Times = ()
    latency_ns: _Times = ()
    stages_ns: dict[StageName, _Times] = {}

    @_model_validator(mode="after")
    def _agrees(self) -> "Content":
        if len(self.start_ns) != len(self.latency_ns):
            raise ValueError(
                f"start_ns has {len(self.start_ns)} times and latency_ns {len(self.latency_ns)}; "
                "they go together, one each for an inference"
            )
        if self.inferences is not None and self.inferences < len(self.start_ns):
            raise ValueError(f"inferences is {self.inferences}, and {len(self.start_ns)} are timed")
        return self


class End(Content):
    """The window that began as ``run_id`` ends.

    Attributes:
        run_id: What its begin was answered.
        begin_ns: When the first inference of it really began, not before the begin.
        end_ns: When the last one was complete; now where it is not said.
    """

    event: Literal["end"]
    run_id: str
    begin_ns: _Nanoseconds | None = None
    end_ns: _Nanoseconds | None = None


class Whole(Content):
    """A window that is over, told at once.

    Attributes:
        workload: As of ``Begin``; so are ``device`` and ``batch``.
        begin_ns: When it began, on CLOCK_MONOTONIC.
        end_ns: When it ended.
    """

    workload: str
    device: Device | None = None
    batch: PositiveInt | None = None
    begin_ns: _Nanoseconds
    end_ns: _Nanoseconds


def read_mark(body: bytes) -> Begin | End | Whole:
    """Read what was posted.

    Raises:
        Refusal: It is no mark; says which word of it is wrong.

    >>> read_mark(b'{"event": "begin", "workload": "detector"}').workload
    'detector'
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Refusal(400, "the body is no JSON object", 'send {"event": "begin", …}')
    event = document.get("event")
    if event == "begin":
        return _read(Begin, document)
    if event == "end":
        return _read(End, document)
    if event is None:
        return _read(Whole, document)
    raise Refusal(400, f"event is {str(event)[:40]!r}", "it is begin, end, or left out")


def _read(kind: type[M], document: dict[str, Any]) -> M:
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        what = f"{where}: {first['msg']}" if where else first["msg"]
        raise Refusal(400, what[:300], "docs/windows.md has every key") from None
