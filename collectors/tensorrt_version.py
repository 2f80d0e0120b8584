"""Which TensorRT this machine has, as its package says: nothing of it is imported."""

from importlib.metadata import PackageNotFoundError, version


def tensorrt_version() -> str | None:
    """Return the release of the TensorRT package of this Python; ``None`` without one."""
    try:
        return version("tensorrt")
    except PackageNotFoundError:
        return None
