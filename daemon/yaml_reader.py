"""A child that reads YAML on standard input and prints it as JSON, with the line of every key.

The daemon reads a file once an hour at most, but a YAML library would stay in it for ever.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

Path = Sequence[str | int]


def read(text: str) -> dict[str, Any]:
    r"""Read a document.

    Args:
        text: YAML.

    Returns:
        ``data``, what it says; ``lines``, pairs of a path and the line on which it stands; or
        ``problems``, pairs of a line (0 where it is not known) and what is wrong there.

    >>> read("a: [1, 2]")
    {'data': {'a': [1, 2]}, 'lines': [(['a'], 1), (['a', 0], 1), (['a', 1], 1)]}
    >>> read("a: 1\na: 2")
    {'problems': [(2, 'a: given twice')]}
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = str(getattr(error, "problem", None) or error).splitlines()[0]
        return {"problems": [(mark.line + 1 if mark else 0, said)]}
    found = list(_lines(root, [])) if root is not None else []
    seen: set[tuple[str | int, ...]] = set()
    twice = []
    for path, line in found:
        if tuple(path) in seen:
            twice.append((line, f"{'.'.join(map(str, path))}: given twice"))
        seen.add(tuple(path))
    return {"problems": twice} if twice else {"data": data, "lines": found}


def _lines(node: yaml.Node, path: Path) -> Iterator[tuple[Path, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = [*path, str(key.value)]
            yield here, key.start_mark.line + 1
            yield from _lines(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            here = [*path, index]
            yield here, value.start_mark.line + 1
            yield from _lines(value, here)


if __name__ == "__main__":
    print(json.dumps(read(sys.stdin.read()), default=str))
