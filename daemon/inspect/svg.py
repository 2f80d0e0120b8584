"""Elements of an SVG file; whatever the words are, the file is well formed."""

from xml.etree import ElementTree

Point = tuple[float, float]


def rectangle(
    parent: ElementTree.Element, colour: str, corner: Point, size: Point, radius: float
) -> None:
    """Add a rectangle with a class, by its upper left corner."""
    (x, y), (width, height) = corner, size
    attributes = {"class": colour, "x": f"{x:g}", "y": f"{y:g}", "rx": f"{radius:g}"}
    attributes |= {"width": f"{width:g}", "height": f"{height:g}"}
    ElementTree.SubElement(parent, "rect", attributes)


def label(
    parent: ElementTree.Element, kind: str, at: Point, said: str, anchor: str | None = None
) -> None:
    """Add words with a class; the anchor is ``end`` where they end at the point."""
    attributes = {"class": kind, "x": f"{at[0]:g}", "y": f"{at[1]:g}"}
    if anchor is not None:
        attributes["text-anchor"] = anchor
    set_text(ElementTree.SubElement(parent, "text", attributes), said)


def set_text(element: ElementTree.Element, said: str) -> None:
    """Set words; what XML cannot hold at all becomes the mark of what cannot be shown."""
    element.text = "".join(one if _is_xml(one) else "\N{REPLACEMENT CHARACTER}" for one in said)


def _is_xml(letter: str) -> bool:
    code = ord(letter)
    return (
        letter in "\t\n"
        or 0x20 <= code < 0x7F
        or 0xA0 <= code <= 0xD7FF
        or 0xE000 <= code <= 0xFFFD
        or code >= 0x10000
    )


def shortened(name: str, length: int) -> str:
    """Keep the end, which tells nodes apart.

    >>> shortened("/model.22/cv3.2/conv/Conv", 12)
    '…2/conv/Conv'
    """
    return name if len(name) <= length else f"…{name[len(name) - max(1, length - 1) :]}"
