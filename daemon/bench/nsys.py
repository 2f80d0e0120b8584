"""Nsight Systems round a worker: a timeline to look at, of which no figure is taken."""

import shutil
from pathlib import Path

from ...parsers.errors import Mendable
from ..session.executor import WORKER

PROGRAM = "nsys"
# Writing a report takes as long as what it holds is large; on a small board that is a while.
REPORT_SECONDS = 180.0
_TRACED = "cuda,nvtx,osrt"


def find_nsys(program: str = PROGRAM) -> str:
    """Return the path of the program.

    Raises:
        Mendable: It is not installed.
    """
    found = shutil.which(program)
    if found is None:
        raise Mendable(
            f"{program} was not found",
            "install Nsight Systems (on a Jetson: apt install nsight-systems-*), or leave --nsys"
            " out",
        )
    return found


def watched_worker(program: str, report: Path) -> tuple[str, ...]:
    """Return the command of a worker that is watched.

    Args:
        program: Path of nsys.
        report: Where its report goes, ending in ``.nsys-rep``; one that is there is replaced.

    >>> watched_worker("nsys", Path("/b/gpu.nsys-rep"))[:4]
    ('nsys', 'profile', '--output', '/b/gpu.nsys-rep')
    """
    return (
        *(program, "profile", "--output", str(report), "--force-overwrite", "true"),
        # Samples of the CPU need rights that a user seldom has, and answer another question.
        *("--trace", _TRACED, "--sample", "none", "--cpuctxsw", "none"),
        *WORKER,
    )
