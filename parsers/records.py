"""Every record that a line of text becomes: frozen, in base units, the unit in the name.

A value that a line does not contain is ``None`` (a list or mapping is empty); it is never 0.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from .signals import SIGNALS, Signal

Ratio = Annotated[float, Field(ge=0, le=1), msgspec.Meta(ge=0, le=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
GateState = Literal["on", "off"]


class Record(BaseModel):
    """Base of records that are checked when they are made, such as answers of children."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def without(given: Any, *names: str) -> Any:
    """Return a stored record without keys that only older releases wrote."""
    if not isinstance(given, Mapping):
        return given
    return {name: value for name, value in given.items() if name not in names}


class TelemetryRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of parsed telemetry: cheap to make, and not checked, since the parser did that."""

    def model_dump(self) -> dict[str, Any]:
        """Return the record as mappings and tuples."""
        return cast(dict[str, Any], msgspec.to_builtins(self, builtin_types=(datetime,)))

    def model_dump_json(self, *, exclude: Collection[str] = ()) -> str:
        """Return the record as one line of JSON, without the fields to exclude."""
        if not exclude:
            return msgspec.json.encode(self).decode()
        shown = msgspec.structs.asdict(self)
        return msgspec.json.encode({k: v for k, v in shown.items() if k not in exclude}).decode()

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of the record."""
        return msgspec.json.schema(cls)


class Ram(TelemetryRecord, frozen=True, gc=False):
    """Memory of Linux, printed as ``RAM 936/3964MB (lfb 366x4MB)``.

    The largest free block is that of the buddy allocator; so many of its size are free.
    """

    used_bytes: Natural
    total_bytes: Natural
    largest_free_block_bytes: Natural | None = None
    largest_free_block_count: Natural | None = None


class Swap(TelemetryRecord, frozen=True, gc=False):
    """Swap, printed as ``SWAP 45/15294MB (cached 0MB)``; cached is in memory too."""

    used_bytes: Natural
    total_bytes: Natural
    cached_bytes: Natural | None = None


class Iram(TelemetryRecord, frozen=True, gc=False):
    """On-chip memory of TX1 and Nano, printed as ``IRAM 0/252kB(lfb 252kB)``."""

    used_bytes: Natural
    total_bytes: Natural
    largest_free_block_bytes: Natural | None = None


class Core(TelemetryRecord, frozen=True, gc=False):
    """One CPU core, numbered as in the kernel; an offline one has neither load nor clock.

    The load is the busy share since the line before, the clock that at the moment of the line.
    """

    core: Natural
    online: bool
    utilization_ratio: Ratio | None = None
    frequency_hertz: Natural | None = None


class Emc(TelemetryRecord, frozen=True, gc=False):
    """The memory controller.

    The load is a share of the bandwidth at the present clock; ``None`` without a clock, since an
    unprivileged tegrastats prints a constant 0 % there.
    """

    utilization_ratio: Ratio | None = None
    frequency_hertz: Natural | None = None


class Gpu(TelemetryRecord, frozen=True, gc=False):
    """GPU (GR3D).

    Attributes:
        utilization_ratio: One figure for all clusters; a sample at the moment of the line.
        frequency_hertz: Clock of each cluster (GPC); 0 is a gated cluster, empty is not printed.
        cluster_utilization_ratio: One figure a cluster, where the line has ``GR3D2_FREQ`` too.
    """

    utilization_ratio: Ratio | None = None
    frequency_hertz: tuple[Natural, ...] = ()
    cluster_utilization_ratio: tuple[Ratio, ...] = ()


class Engine(TelemetryRecord, frozen=True, gc=False):
    """One of the smaller engines: NVENC, NVDEC, NVJPG, VIC, OFA, PVA0, APE, MTS_FG and so on.

    Attributes:
        state: ``off`` where the line says so or prints a clock of 0, ``on`` where it prints a
            clock above 0, ``None`` where it prints a load alone.
    """

    state: GateState | None = None
    utilization_ratio: Ratio | None = None
    frequency_hertz: Natural | None = None


class Dla(Engine, frozen=True, kw_only=True, gc=False):
    """One deep-learning accelerator core (NVDLA), 0 or 1.

    A clock is not a load: the driver keeps a core powered for a while after its last task.
    """

    core: Natural


class Rail(TelemetryRecord, frozen=True, gc=False):
    """Power on one supply rail, printed as ``VDD_IN 5139mW/4890mW``.

    A reading below zero is valid: the monitor of an idle rail has an error of a step around zero.

    Attributes:
        instant_watts: Power as the line was printed; energy is made of this alone.
        average_watts: Mean since tegrastats started.
        maximum_watts: Highest since tegrastats started (R39).
    """

    instant_watts: float
    average_watts: float | None = None
    maximum_watts: float | None = None


class Sample(TelemetryRecord, frozen=True):
    """One line of tegrastats.

    Attributes:
        time: Local time as printed, without zone, in whole seconds; R34 and later. Without it, the
            local time that a recorder put before the line.
        received: Time that a recorder put before the line, in UTC, to the microsecond.
        swap: ``None`` where swap is disabled.
        iram: TX1 and Nano, as root.
        edp_limit_hertz: CPU clock limit of TK1 and TX1 on R24 (``EDP limit 1734``; that the
            number is megahertz is inferred from the clock next to it).
        engines: The other engines by name, without ``_FREQ`` and ``_LOAD``. ``MTS fg 3% bg 7%``
            is ``MTS_FG`` and ``MTS_BG``; the vector units of ``PVA0`` are ``PVA0_VPU0`` ….
        temperatures_celsius: By thermal zone; ``None`` is a sensor that is powered off.
        temperatures_max_celsius: Highest since tegrastats started, by zone (R39).
        rails: By name as printed.
        unparsed: Tokens that were not understood, verbatim and in order.
    """

    time: datetime | None = None
    received: datetime | None = None
    ram: Ram | None = None
    swap: Swap | None = None
    iram: Iram | None = None
    cpu: tuple[Core, ...] = ()
    edp_limit_hertz: Natural | None = None
    emc: Emc | None = None
    gpu: Gpu | None = None
    engines: dict[str, Engine] = {}
    dla: tuple[Dla, ...] = ()
    temperatures_celsius: dict[str, float | None] = {}
    temperatures_max_celsius: dict[str, float] = {}
    rails: dict[str, Rail] = {}
    unparsed: tuple[str, ...] = ()
    source_line: str | None = None


class GpuSample(Sample, frozen=True, kw_only=True):
    """One reading of NVML.

    Attributes:
        at_ns: CLOCK_MONOTONIC at which power was read.
        columns: Its values but power, in base units by the name of the column.
    """

    at_ns: Natural
    columns: dict[str, float] = {}


def has_root_fields(sample: Sample) -> bool:
    """Return whether a sample has values that tegrastats prints only for root.

    Without root, tegrastats omits DLA, EMC and engines, or prints ``EMC_FREQ 0%`` without a clock,
    whatever the load.

    >>> from .tegrastats import parse_line
    >>> has_root_fields(parse_line("RAM 1/2MB EMC_FREQ 0%@2133 GR3D_FREQ 0% NVDLA0 off"))
    True
    >>> has_root_fields(parse_line("RAM 1/2MB EMC_FREQ 0% GR3D_FREQ 0% tj@47C"))
    False
    """
    return bool(sample.emc not in (None, Emc()) or sample.dla or sample.engines)


_STATES: Final = {"on": 1, "off": 0, True: 1, False: 0, None: None}


def _rows() -> dict[str, dict[str, Signal]]:
    """Return the rows of each field of a sample, by attribute of the record ("" is itself)."""
    found: dict[str, dict[str, Signal]] = {}
    # States come first, as in the records.
    for row in sorted(SIGNALS, key=lambda row: row.dtype != "boolean"):
        part, *words = (word for word in row.template.split(".") if not word.startswith("{"))
        field = ".".join(words)
        if field == "on":
            field = "state"
        found.setdefault(part, {})[field] = row
    return {part: found[part] for part in Sample.__annotations__ if part in found}


_ROWS: Final = _rows()


def flatten(sample: Sample) -> dict[str, float]:
    """Return every number of a sample by the name of its column.

    A value that the line does not contain has no name here. States become 1 and 0.

    >>> from .tegrastats import parse_line
    >>> flatten(parse_line("RAM 1/2MB CPU [5%@729,off] NVDLA0 off tj@40C VDD_IN 5139mW/4890mW"))
    {'ram.used_bytes': 1048576, 'ram.total_bytes': 2097152, 'cpu.0.online': 1, \
'cpu.0.utilization_ratio': 0.05, 'cpu.0.frequency_hertz': 729000000, 'cpu.1.online': 0, \
'dla.0.on': 0, 'temperatures_celsius.tj': 40.0, 'rails.VDD_IN.instant_watts': 5.139, \
'rails.VDD_IN.average_watts': 4.89}
    """
    named: dict[str, Any] = {}
    for part in _ROWS:
        value = getattr(sample, part)
        if value is None:
            continue
        if isinstance(value, tuple):
            value = {record.core: record for record in value}
        elif not isinstance(value, dict):
            value = {"": value}
        for label, record in value.items():
            for field, row, column in _columns(part, label, record.__class__):
                number = getattr(record, field) if field else record
                if isinstance(number, tuple):
                    for unit, one in enumerate(number):
                        named[row.column(unit)] = one
                elif row.dtype == "boolean":
                    named[column] = _STATES[number]
                else:
                    named[column] = number
    if isinstance(sample, GpuSample):
        named |= sample.columns
    return {column: value for column, value in named.items() if value is not None}


@lru_cache(1024)
def _columns(part: str, label: str | int, kind: type) -> tuple[tuple[str, Signal, str], ...]:
    """Return attribute, row and column of each number of a kind of record."""
    known = ("", *getattr(kind, "__struct_fields__", ()))
    rows = _ROWS[part].items()
    return tuple((field, row, row.column(label)) for field, row in rows if field in known)
