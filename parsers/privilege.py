"""What tegrastats shows to root alone, and whether a sample has any of it."""

from .records import Sample


def has_root_fields(sample: Sample) -> bool:
    """Say whether a sample tells of the DLA, the memory controller or any other engine.

    Without root, tegrastats leaves them out, or prints ``EMC_FREQ 0%`` with no clock, whatever
    the load.

    >>> from .tegrastats import parse_line
    >>> has_root_fields(parse_line("RAM 1/2MB EMC_FREQ 0%@2133 GR3D_FREQ 0% NVDLA0 off"))
    True
    >>> has_root_fields(parse_line("RAM 1/2MB EMC_FREQ 0% GR3D_FREQ 0% tj@47C"))
    False
    """
    emc = sample.emc
    tells_emc = emc is not None and (
        emc.utilization_ratio is not None or emc.frequency_hertz is not None
    )
    return tells_emc or bool(sample.dla or sample.engines)
