"""What is asked of a worker: one model on one accelerator, for a look or for a round."""

import re
from pathlib import Path

from ...collectors.catalog import REFERENCE_BACKEND
from ...collectors.models.files import BUILTIN_PREFIX
from ..measure.run_report import Device
from ..settings.config import Workload
from .result import BenchSettings

REFERENCE = REFERENCE_BACKEND
# A first look builds the engine; on a small board that takes its time.
LOOK_SECONDS = 3600.0


def workload_of(settings: BenchSettings, model: str, device: Device) -> Workload:
    """Return a round of a model on an accelerator, as the daemon would have it configured."""
    backend = settings.backend or (REFERENCE if settings.is_simulated else None)
    return Workload.model_validate(
        {
            "name": workload_name(model, device),
            "model": found_at(model),
            "device": device,
            "backend": backend,
            "batch": settings.batch,
            "streams": settings.streams,
            "cuda_graph": settings.cuda_graph,
            "transfers": settings.transfers,
            "precision": settings.precision,
            "optimization_level": settings.optimization_level,
            "fallback": settings.fallback,
            "process": settings.process,
            "warm_up": settings.warm_up_seconds,
            "baseline": settings.baseline_seconds,
            "duration": settings.duration_seconds,
        }
    )


def reference_of(settings: BenchSettings, model: str) -> Workload:
    """Return the model as it was given, once, by ONNX Runtime on the CPU."""
    return look(
        Workload(
            name=workload_name(model, "reference"),
            model=found_at(model),
            device="cpu",
            backend=REFERENCE,
            batch=settings.batch,
        )
    )


def look(workload: Workload) -> Workload:
    """Return the same for a single inference: to build it, and to look at what it answers."""
    changes = {"warm_up": 0.0, "baseline": 0.0, "duration": None, "count": 1}
    return workload.model_copy(update=changes)


def found_at(model: str) -> str:
    """Return where a worker finds a model, whatever directory it runs in."""
    if model.startswith(BUILTIN_PREFIX):
        return model
    return str(Path(model).expanduser().absolute())


def workload_name(model: str, device: str) -> str:
    """Name a run after its model and its accelerator.

    >>> workload_name("builtin:resnet50", "dla0"), workload_name("nets/Größe 2.onnx", "gpu")
    ('resnet50-dla0', 'Gr-e-2-gpu')
    """
    stem = Path(model.removeprefix(BUILTIN_PREFIX)).stem
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", stem).strip("-_.") or "model"
    return f"{plain[:48]}-{device}"
