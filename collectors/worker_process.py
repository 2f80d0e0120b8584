"""How a worker shares the machine: its priority, its cores, and its part of the GPU under MPS."""

import os
from collections.abc import Sequence
from pathlib import Path

from ..parsers.errors import Mendable
from ..parsers.run_events import Process

MPS_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
MPS_PIPE_DIRECTORY = "/tmp/nvidia-mps"


def process_arguments(process: Process) -> list[str]:
    """Return the worker's arguments that ask for these settings.

    >>> process_arguments(Process(nice=5, cpus=(4, 5)))
    ['--nice', '5', '--cpus', '4,5']
    """
    arguments = ["--nice", str(process.nice)] if process.nice else []
    if process.cpus:
        arguments += ["--cpus", ",".join(map(str, process.cpus))]
    if process.mps_percentage is not None:
        arguments += ["--mps-percentage", str(process.mps_percentage)]
    return arguments


def read_cpus(text: str) -> tuple[int, ...]:
    """Read ``4,5``.

    Raises:
        ValueError: It is no list of numbers.
    """
    return tuple(int(part) for part in text.split(","))


def settle(nice: int, cpus: Sequence[int], mps_percentage: int | None) -> None:
    """Bring settings into force for this process and its threads, before any library is loaded.

    Args:
        nice: Added to the present niceness.
        cpus: Cores to run on; none leaves all of them.
        mps_percentage: Share of the GPU's multiprocessors; CUDA reads it when it starts.

    Raises:
        Mendable: The machine has no such core, or no MPS server runs.
    """
    if nice:
        os.nice(nice)
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except (OSError, ValueError, OverflowError):
            there = ",".join(map(str, sorted(os.sched_getaffinity(0))))
            raise Mendable(
                f"the worker cannot run on CPUs {','.join(map(str, cpus))}",
                f"process.cpus: those that it may use here are {there}",
            ) from None
    if mps_percentage is not None:
        pipe = Path(os.environ.get(MPS_PIPE_VARIABLE, MPS_PIPE_DIRECTORY))
        if not (pipe / "control").exists():
            raise Mendable(
                f"no MPS server runs (there is no {pipe / 'control'})",
                "start nvidia-cuda-mps-control -d, or leave process.mps_percentage out",
            )
        os.environ[MPS_VARIABLE] = str(mps_percentage)
