"""Results of benches as documents, with what a test wants in them."""

from pathlib import Path

from tegrascope.daemon.measure.report import Distribution, Environment
from tegrascope.workbench.results.records import (
    AcceleratorResult,
    BenchResult,
    BenchSettings,
    Contention,
    Figure,
    LaneTogether,
    ModelResult,
    Together,
)


def about(value, share=0.02):
    return Figure(value=value, low=value * (1 - share), high=value * (1 + share))


def spread(ms, p99=1.1):
    low, high = ms / 1e3, p99 * ms / 1e3
    return Distribution(
        count=5000,
        min_seconds=low,
        mean_seconds=low,
        p50_seconds=low,
        p90_seconds=high,
        p95_seconds=high,
        p99_seconds=high,
        p999_seconds=high,
        max_seconds=high,
    )


def lane(device, ms, joules=None, gpu=None, **changes):
    """Return a model on an accelerator: its median latency, its net energy, its load on the GPU."""
    return AcceleratorResult.model_validate(
        {
            "device": device,
            "backend": "tensorrt",
            "status": "ok",
            "latency": spread(ms),
            "latency_seconds": about(ms / 1e3),
            "throughput_per_second": about(1e3 / ms),
            "net_joules_per_inference": None if joules is None else about(joules),
            "utilization": {} if gpu is None else {"gpu": about(gpu)},
            "rounds": 4,
            **changes,
        }
    )


def model(name, *lanes, sha="ab"):
    return ModelResult(model=f"nets/{name}.onnx", model_sha256=sha * 32, accelerators=lanes)


def together(*lanes, excess=None):
    """Return models at once: of each name, accelerator and slowdown."""
    return Together(
        lanes=tuple(
            LaneTogether(
                model=f"nets/{name}.onnx",
                device=device,
                slowdown=about(slowdown),
                tail_slowdown=slowdown,
                throughput_ratio=about(1 / slowdown),
            )
            for name, device, slowdown in lanes
        ),
        status="ok",
        rounds=4,
        excess_watts=None if excess is None else about(excess),
    )


def result(*models, contention=(), environment=None, at=1, **changes):
    asked = {
        "models": [one.model for one in models],
        "duration_seconds": 15.0,
        "baseline_seconds": 8.0,
        "warm_up_seconds": 1.0,
        "rounds": 4,
        **changes.pop("settings", {}),
    }
    return BenchResult(
        tegrascope="1.0",
        started_wall_ns=0,
        ended_wall_ns=at,
        settings=BenchSettings.model_validate(asked),
        environment=Environment.model_validate(
            {"board": "AGX Orin", "power_mode": "MAXN", **(environment or {})}
        ),
        models=models,
        contention=Contention(planned_seconds=0.0, together=contention) if contention else None,
        **changes,
    )


def written(place: Path, name: str, found: BenchResult) -> str:
    (place / name).mkdir(exist_ok=True)
    path = place / name / "result.json"
    path.write_text(found.model_dump_json(exclude_none=True))
    return str(path.parent)
