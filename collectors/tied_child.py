"""A program that ends with the worker that started it, whatever ends that."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .engines.base import EngineUnavailable
from .process import LineChild

# A program may run for minutes, and the worker be killed meanwhile: Linux is asked to end the
# child with it (PR_SET_PDEATHSIG, SIGKILL), which a process can only ask for itself.
_GOES_WITH_US = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]):\n"
    "    sys.exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def start_tied(argv: Sequence[str], env: Mapping[str, str] | None = None) -> LineChild:
    """Start a program that ends with this thread, whatever ends it.

    Args:
        argv: Full path and arguments.
        env: Variables beside our own.
    """
    tied = [sys.executable, "-I", "-S", "-c", _GOES_WITH_US, str(os.getpid()), *argv]
    return LineChild(tied, env=None if env is None else {**os.environ, **env})


def find_executable(name: str) -> Path:
    """Return the full path of a program.

    Raises:
        EngineUnavailable: It is not there, or may not be executed.
    """
    found = shutil.which(Path(name).expanduser())
    if found is None:
        raise EngineUnavailable(
            f"there is no program {name}", "install it, or give its full path as command:"
        )
    return Path(found).absolute()
