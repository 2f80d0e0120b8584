"""Priority, cores and share of the GPU, brought into force in a process of their own."""

import json
import os
import subprocess
import sys

import pytest

from tegrascope.collectors.worker.child import process_arguments, read_cpus
from tegrascope.parsers.inference.events import Process

SETTLE = """
import json, os, sys
from tegrascope.collectors.worker.child import settle
from tegrascope.parsers.errors import UserError
try:
    settle(*json.loads(sys.argv[1]))
except UserError as error:
    sys.exit(str(error))
share = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
print(json.dumps([os.nice(0), sorted(os.sched_getaffinity(0)), share]))
"""


def settle(nice=0, cpus=(), mps_percentage=None, **environment):
    """Settle in a child; return niceness, cores and share, or what it said against it."""
    done = subprocess.run(
        [sys.executable, "-c", SETTLE, json.dumps([nice, cpus, mps_percentage])],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def test_priority_and_cores_are_in_force():
    """What was asked for is what the process has, and nothing asked for changes nothing."""
    niceness, cores = os.nice(0), sorted(os.sched_getaffinity(0))
    assert settle() == [niceness, cores, None]
    assert settle(nice=2, cpus=cores[-1:]) == [min(niceness + 2, 19), cores[-1:], None]


def test_a_share_of_the_gpu_needs_a_server(tmp_path):
    """Without MPS the share would be taken in silence and mean nothing."""
    said = settle(mps_percentage=40, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))
    assert "no MPS server runs" in said
    (tmp_path / "control").touch()
    assert settle(mps_percentage=40, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))[2] == "40"


@pytest.mark.parametrize("process", [Process(), Process(nice=1, cpus=(3, 1), mps_percentage=9)])
def test_arguments_say_what_was_asked_for(process):
    """The worker's command line holds the settings, and nothing where there are none."""
    arguments = process_arguments(process)
    told = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert int(told.get("--nice", 0)) == process.nice
    assert (read_cpus(told["--cpus"]) if "--cpus" in told else ()) == process.cpus
    assert told.get("--mps-percentage") == (process.mps_percentage and str(process.mps_percentage))
