"""Shapes of inputs as the command line gives them."""

import argparse
import re

_SHAPE = re.compile(r"(?P<name>.+):(?P<lengths>[1-9]\d*(?:x[1-9]\d*)*)", re.ASCII)


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read the shape of an input; its name may have colons of its own.

    >>> shape("images:0:1x3x224x224")
    ('images:0', (1, 3, 224, 224))
    """
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape, like input:1x3x224x224")
    return found["name"], tuple(map(int, found["lengths"].split("x")))
