"""Colours of the picture, by day and by night.

Loadables take the cool colours in turn, the GPU the warm one. A renderer that knows no colour
schemes shows the picture by day. Variables are not used: not every renderer has them.
"""

# Fill and line by day, fill and line by night.
_DLA = (
    ("#cfe8d8", "#2e8555", "#1d4a33", "#5cb385"),
    ("#cfe2f7", "#2f6fb3", "#1c3d61", "#6ca6de"),
    ("#e2d9f5", "#7353b8", "#3d2d66", "#a78be0"),
    ("#cdebec", "#22818a", "#15464b", "#58b8c0"),
    ("#e3ebc6", "#6e8420", "#3b4714", "#a3bb4d"),
    ("#d6daf8", "#4c56bd", "#2a3070", "#8c95e8"),
)
DLA_COLOURS = len(_DLA)
_OTHERS = {
    "gpu": ("#fbdcc0", "#c35a10", "#63300c", "#ee8c45"),
    "folded": ("#eef0f2", "#9aa3ad", "#262b31", "#6d7782"),
    "constant": ("#ffffff", "#b9c0c8", "#15181c", "#4a525b"),
    "unknown": ("#fbf0b8", "#a08206", "#4f430b", "#d6b931"),
    "edge": ("#e4e7ea", "#59636e", "#32383f", "#a3adb8"),
}
_ALL = {**{f"dla{at}": colours for at, colours in enumerate(_DLA)}, **_OTHERS}

STYLE = "\n".join(
    (
        "",
        "text { font: 11px system-ui, sans-serif; fill: #1b1f24 }",
        ".head { font-size: 15px; font-weight: 600 }",
        ".said { font-size: 12px }",
        ".op { font-weight: 600 }",
        ".badge { font-size: 10px }",
        ".name, .badge { fill: #4a525b }",
        ".page { fill: #ffffff }",
        ".line { fill: none; stroke: #8a939d; stroke-width: 1.2 }",
        ".folded, .constant { stroke-dasharray: 4 3 }",
        *(f".{name} {{ fill: {one[0]}; stroke: {one[1]} }}" for name, one in _ALL.items()),
        "@media (prefers-color-scheme: dark) {",
        "text { fill: #e6e9ec }",
        ".name, .badge { fill: #b7c0c9 }",
        ".page { fill: #15181c }",
        ".line { stroke: #69737e }",
        *(f".{name} {{ fill: {one[2]}; stroke: {one[3]} }}" for name, one in _ALL.items()),
        "}",
        "",
    )
)
