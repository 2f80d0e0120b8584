"""A Sample becomes named numbers, the form in which samples are kept, stored and cut."""

from .records import Engine, Sample


def flatten(sample: Sample) -> dict[str, float]:
    """Name every number of a sample by its path in the record.

    What the line did not say has no name here. States become 1 and 0 under ``.on`` and
    ``.online``; clusters of the GPU are numbered under ``gpu.frequency_hertz``.

    Args:
        sample: A parsed line.

    Returns:
        Path to number, for instance ``rails.VDD_IN.instant_watts`` or ``cpu.3.online``.

    >>> from .tegrastats import parse_line
    >>> flatten(parse_line("RAM 1/2MB CPU [5%@729,off] NVDLA0 off tj@40C VDD_IN 5139mW/4890mW"))
    {'ram.used_bytes': 1048576, 'ram.total_bytes': 2097152, 'cpu.0.online': 1, \
'cpu.0.utilization_ratio': 0.05, 'cpu.0.frequency_hertz': 729000000, 'cpu.1.online': 0, \
'dla.0.on': 0, 'temperatures_celsius.tj': 40.0, 'rails.VDD_IN.instant_watts': 5.139, \
'rails.VDD_IN.average_watts': 4.89}
    """
    named: dict[str, float | None] = {}
    for part in ("ram", "swap", "iram", "emc"):
        record = getattr(sample, part)
        if record is not None:
            for field, value in record:
                named[f"{part}.{field}"] = value
    for core in sample.cpu:
        named[f"cpu.{core.core}.online"] = int(core.online)
        named[f"cpu.{core.core}.utilization_ratio"] = core.utilization_ratio
        named[f"cpu.{core.core}.frequency_hertz"] = core.frequency_hertz
    named["edp_limit_hertz"] = sample.edp_limit_hertz
    if sample.gpu is not None:
        named["gpu.utilization_ratio"] = sample.gpu.utilization_ratio
        for cluster, hertz in enumerate(sample.gpu.frequency_hertz):
            named[f"gpu.frequency_hertz.{cluster}"] = hertz
        for cluster, ratio in enumerate(sample.gpu.cluster_utilization_ratio):
            named[f"gpu.cluster_utilization_ratio.{cluster}"] = ratio
    for name, engine in sample.engines.items():
        _flatten_engine(f"engines.{name}", engine, named)
    for dla in sample.dla:
        _flatten_engine(f"dla.{dla.core}", dla, named)
    for zone, celsius in sample.temperatures_celsius.items():
        named[f"temperatures_celsius.{zone}"] = celsius
    for zone, maximum in sample.temperatures_max_celsius.items():
        named[f"temperatures_max_celsius.{zone}"] = maximum
    for name, rail in sample.rails.items():
        for field, watts in rail:
            named[f"rails.{name}.{field}"] = watts
    named.update(sample.beside())
    return {name: value for name, value in named.items() if value is not None}


def _flatten_engine(path: str, engine: Engine, named: dict[str, float | None]) -> None:
    if engine.state is not None:
        named[f"{path}.on"] = int(engine.state == "on")
    named[f"{path}.utilization_ratio"] = engine.utilization_ratio
    named[f"{path}.frequency_hertz"] = engine.frequency_hertz
