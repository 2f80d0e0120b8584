"""Start children: our own Python, programs that end with us, and probes that print a record."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ...parsers.errors import BackendUnavailable, Mendable
from ...parsers.records import Record
from .process import LineChild

# ``-m`` puts the current directory in front of the path of imports, where a file may have the name
# of a module of ours or of the standard library. ``sys`` and ``os`` are loaded by then.
_OUR_PYTHON = """\
import sys, os
own = [os.path.abspath(entry) for entry in sys.path if entry]
sys.path[:] = dict.fromkeys(own + sys.argv.pop(1).splitlines())
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
_PACKAGE = Path(__file__).absolute().parents[2]

# A program may run for minutes, and the worker be killed meanwhile: Linux is asked to end the
# child with it (PR_SET_PDEATHSIG, SIGKILL), which a process can only ask for itself.
_GOES_WITH_US = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]):\n"
    "    sys.exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def python_child(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module of ours as a child.

    The child has its own path of imports and ours as absolute entries, without the current
    directory.
    """
    entries = (str(Path(entry).absolute()) for entry in sys.path if entry)
    path = [entry for entry in dict.fromkeys(entries) if entry != str(Path.cwd())]
    if _PACKAGE.name == "tegrascope" and str(_PACKAGE.parent) not in path:
        path.append(str(_PACKAGE.parent))  # run from where it lies, without an installation
    return (sys.executable, "-c", _OUR_PYTHON, "\n".join(path), module, *arguments)


def start_tied(argv: Sequence[str], env: Mapping[str, str] | None = None) -> LineChild:
    """Start a program that ends with this thread, whatever ends it."""
    tied = [sys.executable, "-I", "-S", "-c", _GOES_WITH_US, str(os.getpid()), *argv]
    return LineChild(tied, env=None if env is None else {**os.environ, **env})


def find_executable(name: str) -> Path:
    """Return the full path of a program, or raise ``BackendUnavailable``."""
    found = shutil.which(Path(name).expanduser())
    if found is None:
        raise BackendUnavailable(
            f"there is no program {name}", "install it, or give its full path as command:"
        )
    return Path(found).absolute()


DRIVER = "look at nvidia-smi, or tegrastats on a Jetson: the NVIDIA driver must work first"
_Answer = TypeVar("_Answer", bound=Record)


def ask_child(
    command: Sequence[str], kind: type[_Answer], library: str, question: str, seconds: float
) -> _Answer | Mendable:
    """Run a child to its end and return the record that it prints.

    An error is returned, not raised, because for most callers it is a finding.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Mendable(f"{library} gave no answer in {seconds:g} s when asked {question}", DRIVER)
    except OSError as error:
        return Mendable(
            f"the child that asks {library} {question} does not start ({error})",
            "see that Python can be run",
        )
    for line in reversed(done.stdout.splitlines()):
        try:
            return kind.model_validate_json(line)
        except ValidationError:
            continue  # a library may have printed after it
    code = done.returncode
    how = f"by signal {-code}" if code < 0 else f"by status {code}"
    errors = [line for line in done.stderr.splitlines() if line.strip()]
    words = f"; its last words: {errors[-1].strip()[:200]}" if errors else ""
    return Mendable(f"{library} ended the process that asked {question}, {how}{words}", DRIVER)
