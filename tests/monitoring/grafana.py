"""What Grafana does with a dashboard before it asks Prometheus."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Chosen = Mapping[str, str | list[str]]

_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_LABEL_VALUES = re.compile(r"label_values\((?:(.*), )?(\w+)\)", re.DOTALL)
_IN_PATTERN = re.compile(r"[\\^$*+?.()|\[\]{}]")
_OF_GRAFANA = {"__interval": "5s", "__rate_interval": "20s", "__range": "2m"}

Board = Mapping[str, Any]


def panels(board: Board) -> Iterator[Mapping[str, Any]]:
    """Yield what is drawn, rows apart."""
    for panel in board["panels"]:
        if panel["type"] != "row":
            yield panel


def filled(text: str, chosen: Chosen) -> str:
    """Put what is chosen into a query, as Grafana's Prometheus plugin does.

    Several values become a pattern, each escaped for the pattern and for the quotes around it.

    Raises:
        KeyError: The dashboard has no such variable.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        given = chosen[name] if name in chosen else _OF_GRAFANA[name]
        if isinstance(given, str):
            return given
        escaped = [_IN_PATTERN.sub(lambda one: "\\\\" + one[0], each) for each in given]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    return _VARIABLE.sub(value, text)


def asked(variable: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the selector and the label of a variable's query."""
    found = _LABEL_VALUES.fullmatch(variable["query"])
    assert found is not None, variable["query"]
    return found[1], found[2]


def labels_of(text: str) -> set[str]:
    """Return the labels that a legend or a title names."""
    return set(re.findall(r"\{\{\s*(\w+)\s*\}\}", text))
