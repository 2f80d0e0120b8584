"""Stand-ins as files, so that a child process imports them as it would the real libraries."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
_TAKE = """
for name, value in vars(made).items():
    if name == "__version__" or not name.startswith("__"):
        globals()[name] = value
"""


def write_shims(
    folder: Path,
    version: str = "8.6.1",
    *,
    dla_cores: int = 0,
    driver: bool = True,
    failing: dict[str, str] | None = None,
    dies: str = "",
    computes: bool = False,
    is_blind: bool = False,
) -> str:
    """Write ``tensorrt`` and ``cuda`` into a folder.

    Args:
        folder: Where.
        version: Of TensorRT.
        dla_cores: Of the device.
        driver: Whether CUDA finds one.
        failing: CUDA calls and their errors.
        computes: Whether engines compute their outputs.
        is_blind: Whether these lack the scores of a detector.
        dies: What making a ``Runtime`` does, as Python.

    Returns:
        What PYTHONPATH has to be for them to be found.
    """
    failing = dict(failing or {})
    if not driver:
        failing["cudaSetDevice"] = "cudaErrorInsufficientDriver"
    bindings = folder / "cuda" / "bindings"
    bindings.mkdir(parents=True)
    for package in (folder / "cuda", bindings):
        (package / "__init__.py").write_text("")
    (folder / "fake_orin.py").write_text(
        "from tests.fakes.fake_device import FakeDevice\n"
        f"DEVICE = FakeDevice(dla_cores={dla_cores}, failing={failing!r}, computes={computes},"
        f" is_blind={is_blind})\n"
    )
    (folder / "tensorrt.py").write_text(
        "from fake_orin import DEVICE\nfrom tests.fakes.fake_tensorrt import make_tensorrt\n"
        f"made = make_tensorrt({version!r}, DEVICE)\n{_TAKE}\n"
        + (f"import os, time\ndef Runtime(_): {dies}\n" if dies else "")
    )
    (bindings / "runtime.py").write_text(
        "from fake_orin import DEVICE\nfrom tests.fakes.fake_cuda import make_cuda\n"
        f"made = make_cuda(DEVICE)\n{_TAKE}\n"
    )
    return f"{folder}:{ROOT}"
