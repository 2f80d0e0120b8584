"""What a built engine depends on beside its model: the machine's part of an engine's key."""

import re
from pathlib import Path

_RELEASE = re.compile(r"# R(\d+) \(release\), REVISION: ([\d.]+)")


def machine_parts(*, is_dla: bool, root: Path = Path("/")) -> dict[str, str]:
    """Return release, module and DLA firmware, as far as this machine tells them.

    Args:
        is_dla: Whether the engine is for a DLA; only such an engine depends on its firmware.
        root: Where the machine's files are.
    """
    found = {"l4t": l4t_release(root), "module": module_name(root)}
    if is_dla:
        found["dla_firmware"] = dla_firmware(root)
    return {name: value for name, value in found.items() if value}


def l4t_release(root: Path = Path("/")) -> str:
    """Return Jetson Linux's release as ``36.4.3``; empty on other machines."""
    line = _read(root / "etc/nv_tegra_release").partition("\n")[0]
    told = _RELEASE.match(line)
    return f"{told[1]}.{told[2]}" if told else ""


def module_name(root: Path = Path("/")) -> str:
    """Return carrier and module as the device tree names them; empty where there is none."""
    return _read(root / "proc/device-tree/compatible").partition("\0")[0]


def dla_firmware(root: Path = Path("/")) -> str:
    """Return the version of the DLA's firmware; empty unless root reads it."""
    return _read(root / "sys/kernel/debug/nvdla0/firmware/version").strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
