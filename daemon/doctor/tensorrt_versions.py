"""Which TensorRT still has a DLA, as its documentation says; the core count alone decides."""

import re

_NUMBERS = re.compile(r"\d+")


def explain_dla(version: str) -> tuple[bool, str]:
    """Say what the documentation of a TensorRT says of the DLA.

    Args:
        version: As ``10.3.0``.

    Returns:
        Whether it has one on a module that has cores, and the words for it.

    >>> explain_dla("10.16.2")
    (False, 'TensorRT 10.8 to 10.16 have no DLA (JetPack 7.0 to 7.2.1)')
    >>> explain_dla("11.4.1")[0], explain_dla("10.3.0")[0]
    (True, True)
    """
    found = tuple(int(one) for one in _NUMBERS.findall(version)[:3])
    if found < (10, 8):
        return True, "TensorRT up to 10.7 has the DLA (JetPack 5 and 6)"
    if found < (11,):
        return False, "TensorRT 10.8 to 10.16 have no DLA (JetPack 7.0 to 7.2.1)"
    if found < (11, 4):
        return False, "TensorRT 11.0 to 11.3 have no DLA"
    if found < (11, 4, 1):
        return False, "TensorRT 11.4.0 has the DLA on Windows on Arm only"
    return True, "TensorRT 11.4.1 and later have the DLA of AGX Orin, for typed models"


def mend_dla(module: str | None) -> str:
    """Say which TensorRT to take for the DLA of a module."""
    old = "JetPack 6 (TensorRT 8.6 to 10.7)"
    if module in ("AGX Xavier", "Xavier NX"):
        return "take JetPack 5, the last one for Xavier (TensorRT 8.5)"
    if module == "AGX Orin":
        return f"take {old}, or JetPack 7.2.2 and later with TensorRT 11.4.1"
    return f"take {old}"
