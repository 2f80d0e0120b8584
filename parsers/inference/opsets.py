"""The newest opset of ONNX that the parser of a TensorRT release reads.

Source:
    ``docs/operators.md`` of onnx-tensorrt, in the branch of each release from 7.0 to 10.1, and of
    10.15; "ONNX Opset Guide" of TensorRT 11.
"""

import re

# First release to the newest opset that is documented for it. Releases between two rows read at
# least that of the row before.
_NEWEST: dict[tuple[int, int], int] = {
    (7, 0): 11,
    (8, 0): 13,
    (8, 4): 17,
    (9, 0): 19,
    (10, 0): 20,
    (10, 15): 24,
    (11, 0): 25,
}


def newest_opset(version: str) -> int | None:
    """Return the newest opset that a release is known to read; None for an unknown release.

    >>> newest_opset("8.6.1"), newest_opset("10.3.0.26"), newest_opset("unknown")
    (17, 20, None)
    """
    numbers = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", version)
    if numbers is None:
        return None
    release = int(numbers[1]), int(numbers[2])
    known = [opset for first, opset in _NEWEST.items() if first <= release]
    return known[-1] if known else None
