"""Every record that a line of text becomes: frozen, in base units, the unit in the name.

What a line does not say is ``None`` (a list or mapping is empty); it is never 0.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt

Ratio = Annotated[float, Field(ge=0, le=1)]
GateState = Literal["on", "off"]


class Record(BaseModel):
    """Base of all records: immutable, and a field that is not declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


R = TypeVar("R", bound=Record)


class _Open(Record):
    """A record while it is made: nothing is checked, and assignment is Python's own.

    That takes a third of the time that it takes to get by the methods of a frozen record. The
    class of the record itself is put in last.
    """

    __init__ = object.__init__
    __setattr__ = object.__setattr__
    # Python has one place for these two: only together do they take the short way.
    __delattr__ = object.__delattr__


def maker(kind: type[R]) -> Callable[..., R]:
    """Return what makes a record of values that are known to be right, and looks at none of them.

    It takes the values of all fields, in the order of the class.

    >>> maker(Emc)(0.5, None)
    Emc(utilization_ratio=0.5, frequency_hertz=None)
    """
    names = list(kind.model_fields)
    # Written out, as dataclasses do it: no loop over the names, and no mapping made of them.
    lines = [
        f"def make({', '.join(names)}):",
        "record = new()",
        *(f"record.{name} = {name}" for name in names),
        "record.__pydantic_fields_set__ = given",
        "record.__pydantic_extra__ = None",
        "record.__pydantic_private__ = None",
        "record.__class__ = kind",
        "return record",
    ]
    # Records of one class keep their names in one place: hence a class for each kind.
    new = type(f"_Open{kind.__name__}", (_Open,), {})
    scope = {"new": new, "given": set(names), "kind": kind}
    exec("\n    ".join(lines), scope)
    return cast(Callable[..., R], scope["make"])


def maker_of(kind: type[R], given: set[str]) -> Callable[[dict[str, Any]], R]:
    """Return the like for records of many fields, of which only some were given.

    It takes a mapping of all fields, in the order of the class, and keeps it.

    >>> maker_of(Emc, {"utilization_ratio"})({"utilization_ratio": 0.5, "frequency_hertz": None})
    Emc(utilization_ratio=0.5, frequency_hertz=None)
    """

    def make(fields: dict[str, Any]) -> R:
        record: Any = _Open()
        record.__dict__ = fields
        record.__pydantic_fields_set__ = given
        record.__pydantic_extra__ = None
        record.__pydantic_private__ = None
        record.__class__ = kind
        return cast(R, record)

    return make


class Ram(Record):
    """Memory in use, printed as ``RAM 936/3964MB (lfb 366x4MB)``.

    Attributes:
        used_bytes: In use.
        total_bytes: Available to Linux.
        largest_free_block_bytes: Size of the largest free block of the buddy allocator.
        largest_free_block_count: How many blocks of that size are free.
    """

    used_bytes: NonNegativeInt
    total_bytes: NonNegativeInt
    largest_free_block_bytes: NonNegativeInt | None = None
    largest_free_block_count: NonNegativeInt | None = None


class Swap(Record):
    """Swap in use, printed as ``SWAP 45/15294MB (cached 0MB)``.

    Attributes:
        used_bytes: In use.
        total_bytes: Configured.
        cached_bytes: In memory and on the swap device at once.
    """

    used_bytes: NonNegativeInt
    total_bytes: NonNegativeInt
    cached_bytes: NonNegativeInt | None = None


class Iram(Record):
    """On-chip memory of TX1 and Nano, printed as ``IRAM 0/252kB(lfb 252kB)``.

    Attributes:
        used_bytes: In use.
        total_bytes: On the chip.
        largest_free_block_bytes: Largest free block.
    """

    used_bytes: NonNegativeInt
    total_bytes: NonNegativeInt
    largest_free_block_bytes: NonNegativeInt | None = None


class Core(Record):
    """One CPU core; an offline one has neither load nor clock.

    Attributes:
        core: Index in kernel order.
        online: Whether the core is plugged in.
        utilization_ratio: Busy share since the line before, 0…1.
        frequency_hertz: Clock at the moment of the line.
    """

    core: NonNegativeInt
    online: bool
    utilization_ratio: Ratio | None = None
    frequency_hertz: NonNegativeInt | None = None


class Emc(Record):
    """The memory controller.

    Attributes:
        utilization_ratio: Share of the bandwidth at the present clock; ``None`` without a
            clock beside it, since an unprivileged tegrastats prints a constant 0 % there.
        frequency_hertz: Present clock.
    """

    utilization_ratio: Ratio | None = None
    frequency_hertz: NonNegativeInt | None = None


class Gpu(Record):
    """The GPU (GR3D).

    Attributes:
        utilization_ratio: One figure for all clusters; a sample at the moment of the line.
        frequency_hertz: Clock of each cluster (GPC); 0 is a gated cluster, empty is not printed.
        cluster_utilization_ratio: One figure a cluster, where the line has ``GR3D2_FREQ`` too.
    """

    utilization_ratio: Ratio | None = None
    frequency_hertz: tuple[NonNegativeInt, ...] = ()
    cluster_utilization_ratio: tuple[Ratio, ...] = ()


class Engine(Record):
    """One of the smaller engines: NVENC, NVDEC, NVJPG, VIC, OFA, PVA0, APE, MTS_FG and so on.

    Attributes:
        state: ``off`` where the line says so or prints a clock of 0, ``on`` where it prints a
            clock above 0, ``None`` where it prints a load alone.
        utilization_ratio: Load, where printed.
        frequency_hertz: Clock, where printed.
    """

    state: GateState | None = None
    utilization_ratio: Ratio | None = None
    frequency_hertz: NonNegativeInt | None = None


class Dla(Engine):
    """One deep-learning accelerator core (NVDLA).

    A clock is no load: the driver keeps a core powered for a while after its last task.

    Attributes:
        core: 0 or 1.
    """

    core: NonNegativeInt


class Rail(Record):
    """Power on one supply rail, printed as ``VDD_IN 5139mW/4890mW``.

    Attributes:
        instant_watts: Power as the line was printed; energy is made of this alone.
        average_watts: Mean since tegrastats started.
        maximum_watts: Highest since tegrastats started (R39).
    """

    instant_watts: NonNegativeFloat
    average_watts: NonNegativeFloat | None = None
    maximum_watts: NonNegativeFloat | None = None


class Sample(Record):
    """One line of tegrastats.

    Attributes:
        time: Local time as printed, without zone, in whole seconds; R34 and later.
        ram: Memory.
        swap: Swap; ``None`` where swap is disabled.
        iram: On-chip memory; TX1 and Nano, as root.
        cpu: Cores in kernel order, offline ones too.
        edp_limit_hertz: CPU clock limit of TK1 and TX1 on R24 (``EDP limit 1734``; that the
            number is megahertz is inferred from the clock beside it).
        emc: Memory controller; ``None`` where not printed.
        gpu: GPU; ``None`` where not printed.
        engines: The other engines by name, without ``_FREQ`` and ``_LOAD``. ``MTS fg 3% bg 7%``
            is ``MTS_FG`` and ``MTS_BG``; the vector units of ``PVA0`` are ``PVA0_VPU0`` ….
        dla: DLA cores that the line names.
        temperatures_celsius: By thermal zone; ``None`` is a sensor that is powered off.
        temperatures_max_celsius: Highest since tegrastats started, by zone (R39).
        rails: By name as printed.
        unparsed: Tokens that were not understood, verbatim and in order.
        source_line: The line itself, where it was asked for.
    """

    time: datetime | None = None
    ram: Ram | None = None
    swap: Swap | None = None
    iram: Iram | None = None
    cpu: tuple[Core, ...] = ()
    edp_limit_hertz: NonNegativeInt | None = None
    emc: Emc | None = None
    gpu: Gpu | None = None
    engines: dict[str, Engine] = {}
    dla: tuple[Dla, ...] = ()
    temperatures_celsius: dict[str, float | None] = {}
    temperatures_max_celsius: dict[str, float] = {}
    rails: dict[str, Rail] = {}
    unparsed: tuple[str, ...] = ()
    source_line: str | None = None
