"""What the labels of tegrastats can name, and one name for what releases name differently."""

FIRST_CLUSTER = {"GR3D", "GR3D_FREQ"}
SECOND_CLUSTER = {"GR3D2", "GR3D2_FREQ"}
EMC = {"EMC", "EMC_FREQ"}
# A monitor channel that leads nowhere; AGX Orin prints two.
UNCONNECTED = "NC"

# Never an engine and never a rail: a line cut behind `RAM 13983` would make one.
_TAKEN = {"RAM", "SWAP", "IRAM", "MTS", "EDP"} | FIRST_CLUSTER | SECOND_CLUSTER | EMC
_RAIL_PREFIXES = ("VDD", "VIN", "POM_")

_CANONICAL = {
    "MSENC": "NVENC",
    "NVENC0": "NVENC",
    "NVDEC0": "NVDEC",
    "NVJPG0": "NVJPG",
    "VIC0": "VIC",
    "OFA0": "OFA",
    "PVA": "PVA0",
    "NVDLA": "NVDLA0",
}
_DLA_CORES = {f"NVDLA{core}": core for core in range(10)}
_KNOWN = {
    *("NVENC", "NVENC1", "NVDEC", "NVDEC1", "NVJPG", "NVJPG1", "VIC", "OFA", "PVA0", "APE"),
    *("AVP", "VDE", "NVDLA0", "NVDLA1"),
}


def engine_name(label: str) -> str:
    """Return the one name of an engine on all releases.

    >>> [engine_name(label) for label in ("NVJPG0", "NVJPG1", "MSENC", "VIC_FREQ", "PVA0_FREQ")]
    ['NVJPG', 'NVJPG1', 'NVENC', 'VIC', 'PVA0']
    """
    name = label.removesuffix("_FREQ").removesuffix("_LOAD")
    return _CANONICAL.get(name, name)


def dla_core(name: str) -> int | None:
    """Return the number of a DLA core; ``None`` for every other engine.

    >>> dla_core("NVDLA1"), dla_core("NVDEC1")
    (1, None)
    """
    return _DLA_CORES.get(name)


def names_engine(label: str) -> bool:
    """Tell a plausible engine, known or new, from prose and from what is never one.

    >>> names_engine("NVENC"), names_engine("NEW7"), names_engine("hello"), names_engine("VDD_IN")
    (True, True, False, False)
    """
    if label in _TAKEN or label == "CPU" or len(label) < 2 or not label.isupper():
        return False
    return not label.startswith(_RAIL_PREFIXES)


def ends_a_line(label: str) -> bool:
    """Tell whether a bare number behind this label is a clock even as the last word.

    The end of a line may be cut, and a rail without its last digits (``SYS5V 20``) looks like
    an engine with a clock; so an engine must be known, or say that the number is a clock.

    >>> ends_a_line("APE"), ends_a_line("NEW7_FREQ"), ends_a_line("SYS5V")
    (True, True, False)
    """
    return label.endswith("_FREQ") or engine_name(label) in _KNOWN


def names_rail(label: str, *, has_unit: bool) -> bool:
    """Tell a rail from ``step 3/4``: without a unit its name must be upper-case.

    >>> names_rail("VDD_IN", has_unit=False), names_rail("step", has_unit=False)
    (True, False)
    """
    return label not in _TAKEN and (has_unit or label.isupper())
