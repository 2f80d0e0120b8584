"""A Sample becomes the line that tegrastats would print for it, in the form of R36."""

from collections.abc import Iterator

from .lexer import BYTES, GATED_CELSIUS, HERTZ_PER_MEGAHERTZ
from .records import Core, Dla, Emc, Engine, Gpu, Iram, Rail, Ram, Sample, Swap

# The DLA cores have a field of their own; in a line they stand before these.
_AFTER_DLA = ("PVA", "APE", "MTS")


def render_line(sample: Sample) -> str:
    """Print a Sample as one line, without its newline.

    Engines, zones and rails stand in the order of their mappings. Numbers are rounded to what
    tegrastats prints: whole MB, MHz, percent and mW, thousandths of a degree. Maxima make it
    an R39 line. ``unparsed`` and ``source_line`` are not printed.

    Args:
        sample: A record, parsed or made up.

    Returns:
        The line; ``parse_line`` makes the same record of it if the numbers were on that grid.

    Raises:
        ValueError: The format has no words for it: a core that is online without a load, a
            load of the memory controller without its clock, a cluster load without its like.

    >>> from .tegrastats import parse_line
    >>> render_line(parse_line("RAM 936/3964MB (lfb 366x4MB) APE 174 tj@40.500C VDD_IN 5139/4890"))
    'RAM 936/3964MB (lfb 366x4MB) APE 174 tj@40.5C VDD_IN 5139mW/4890mW'
    """
    return " ".join(_tokens(sample))


def _tokens(sample: Sample) -> Iterator[str]:
    if sample.time is not None:
        # Not `%Y`, which leaves out leading zeros.
        yield f"{sample.time:%m-%d}-{sample.time.year:04} {sample.time:%H:%M:%S}"
    if sample.ram is not None:
        yield _ram(sample.ram)
    if sample.swap is not None:
        yield _swap(sample.swap)
    if sample.iram is not None:
        yield _iram(sample.iram)
    if sample.cpu:
        yield f"CPU [{','.join(map(_core, sample.cpu))}]"
    if sample.emc is not None:
        yield _emc(sample.emc)
    if sample.gpu is not None:
        yield _gpu(sample.gpu)
    yield from _engines(sample)
    if sample.edp_limit_hertz is not None:
        yield f"EDP limit {_megahertz(sample.edp_limit_hertz)}"
    for zone, celsius in sample.temperatures_celsius.items():
        maximum = sample.temperatures_max_celsius.get(zone)
        shown = f"{zone}@{_celsius(GATED_CELSIUS if celsius is None else celsius)}"
        yield shown if maximum is None else f"{shown}/{_celsius(maximum)}"
    for name, rail in sample.rails.items():
        yield f"{name} {_power(rail)}"


def _ram(ram: Ram) -> str:
    text = f"RAM {_pair(ram.used_bytes, ram.total_bytes, 'MB')}"
    size, count = ram.largest_free_block_bytes, ram.largest_free_block_count
    if size is None:
        return text
    unit = "MB" if size >= BYTES["MB"] else "kB"
    number = f"{size // BYTES[unit]}{unit}"
    return f"{text} (lfb {number if count is None else f'{count}x{number}'})"


def _swap(swap: Swap) -> str:
    text = f"SWAP {_pair(swap.used_bytes, swap.total_bytes, 'MB')}"
    if swap.cached_bytes is None:
        return text
    return f"{text} (cached {swap.cached_bytes // BYTES['MB']}MB)"


def _iram(iram: Iram) -> str:
    text = f"IRAM {_pair(iram.used_bytes, iram.total_bytes, 'kB')}"
    if iram.largest_free_block_bytes is None:
        return text
    return f"{text}(lfb {iram.largest_free_block_bytes // BYTES['kB']}kB)"


def _pair(used: int, total: int, unit: str) -> str:
    return f"{used // BYTES[unit]}/{total // BYTES[unit]}{unit}"


def _core(core: Core) -> str:
    if not core.online:
        return "off"
    if core.utilization_ratio is None:
        raise ValueError(f"core {core.core} is online without a load")
    return _load_and_clock(core.utilization_ratio, core.frequency_hertz)


def _emc(emc: Emc) -> str:
    if emc.frequency_hertz is None:
        if emc.utilization_ratio is not None:
            raise ValueError("the memory controller has a load without a clock")
        # What an unprivileged tegrastats prints, whatever the load.
        return "EMC_FREQ 0%"
    return f"EMC_FREQ {_load_and_clock(emc.utilization_ratio, emc.frequency_hertz)}"


def _gpu(gpu: Gpu) -> str:
    clocks = [_megahertz(hertz) for hertz in gpu.frequency_hertz]
    if gpu.cluster_utilization_ratio:
        loads = gpu.cluster_utilization_ratio
        if len(loads) != 2 or loads[0] != gpu.utilization_ratio or len(clocks) not in (0, 2):
            raise ValueError("GR3D and GR3D2 need two loads, and two clocks or none")
        behind = [f"@{clock}" for clock in clocks] or ["", ""]
        first, second = (f"{_percent(load)}{at}" for load, at in zip(loads, behind, strict=True))
        return f"GR3D_FREQ {first} GR3D2_FREQ {second}"
    text = "" if gpu.utilization_ratio is None else _percent(gpu.utilization_ratio)
    if clocks:
        text += f"@[{','.join(map(str, clocks))}]"
    if not text:
        raise ValueError("the GPU has neither a load nor a clock")
    return f"GR3D_FREQ {text}"


def _engines(sample: Sample) -> Iterator[str]:
    dla = list(map(_dla, sample.dla))
    for name, engine in sample.engines.items():
        if dla and name.startswith(_AFTER_DLA):
            yield from dla
            dla = []
        yield from _engine(name, engine, sample.engines)
    yield from dla


def _dla(dla: Dla) -> str:
    return " ".join(_engine(f"NVDLA{dla.core}", dla, {}))


def _engine(name: str, engine: Engine, engines: dict[str, Engine]) -> Iterator[str]:
    load, clock = engine.utilization_ratio, engine.frequency_hertz
    if name == "MTS_FG" and "MTS_BG" in engines:
        background = engines["MTS_BG"].utilization_ratio
        if load is None or background is None:
            raise ValueError("MTS has no load")
        yield f"MTS fg {_percent(load)} bg {_percent(background)}"
        return
    if name == "MTS_BG" and "MTS_FG" in engines:
        return
    owner, unit_mark, _ = name.partition("_VPU")
    if unit_mark and owner in engines:
        return
    units = [engines[key].utilization_ratio for key in engines if key.startswith(f"{name}_VPU")]
    frequency_name = f"{name}_FREQ"
    plain_name = frequency_name if name.startswith("PVA") else name
    if units and clock is not None:
        loads = ",".join(_percent(unit) for unit in units if unit is not None)
        yield f"{plain_name} [{loads}]@{_megahertz(clock)}"
    elif clock is not None and load is not None:
        yield f"{plain_name} {_load_and_clock(load, clock)}"
    elif clock is not None and name == "APE":
        yield f"APE {_megahertz(clock)}"
    elif clock is not None:
        yield f"{frequency_name} @{_megahertz(clock)}"
    elif load is not None:
        if engine.state == "off":
            yield f"{frequency_name} off"
        yield f"{name}_LOAD {_percent(load)}"
    elif engine.state == "off":
        yield f"{plain_name} off"
    else:
        raise ValueError(f"{name} has neither a load nor a clock")


def _load_and_clock(load: float | None, clock: int | None) -> str:
    shown = "" if load is None else _percent(load)
    return shown if clock is None else f"{shown}@{_megahertz(clock)}"


def _power(rail: Rail) -> str:
    numbers = [rail.instant_watts, rail.average_watts, rail.maximum_watts]
    return "/".join(f"{round(watts * 1000)}mW" for watts in numbers if watts is not None)


def _percent(ratio: float) -> str:
    return f"{round(ratio * 100)}%"


def _megahertz(hertz: int) -> int:
    return hertz // HERTZ_PER_MEGAHERTZ


def _celsius(celsius: float) -> str:
    return f"{celsius:.3f}".rstrip("0").rstrip(".") + "C"
