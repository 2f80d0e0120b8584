"""A metric page, read back: series by name, and nothing where there is none."""

from collections.abc import Iterator, Mapping

Labels = Mapping[str, str]

# What a label may hold, and a terminal would obey.
_UNPRINTABLE = dict.fromkeys((*range(32), *range(127, 160)), "?")


class Series:
    r"""All series of one page.

    >>> page = Series('a{core="0"} 1\na{core="1"} 0.5\nb 2\n')
    >>> page.value("b"), page.value("c"), page.by("a", "core")
    (2.0, None, {'0': 1.0, '1': 0.5})
    """

    def __init__(self, text: str) -> None:
        """Read a page in the text format.

        Raises:
            ValueError: It is none.
        """
        from prometheus_client.parser import text_string_to_metric_families

        self._found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {name: clean(value) for name, value in sample.labels.items()}
                self._found.setdefault(sample.name, []).append((labels, float(sample.value)))

    def all(self, name: str, **wanted: str) -> Iterator[tuple[Labels, float]]:
        """Yield the series of a metric that have these labels: labels and value."""
        for labels, value in self._found.get(name, ()):
            if all(labels.get(key) == text for key, text in wanted.items()):
                yield labels, value

    def value(self, name: str, **wanted: str) -> float | None:
        """Return the value of the first such series; ``None`` where there is none."""
        return next((value for _, value in self.all(name, **wanted)), None)

    def by(self, name: str, label: str, **wanted: str) -> dict[str, float]:
        """Return values by one label."""
        return {
            labels[label]: value for labels, value in self.all(name, **wanted) if label in labels
        }

    def labels(self, name: str) -> Labels:
        """Return the labels of the first series of a metric; none where there is no series."""
        return next((labels for labels, _ in self.all(name)), {})


def clean(text: str) -> str:
    r"""Return text of which a terminal prints every character.

    >>> clean("a\x1b[2Jb")
    'a?[2Jb'
    """
    return text.translate(_UNPRINTABLE)
