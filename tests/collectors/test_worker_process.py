"""Priority, cores and share of the GPU, brought into force in a process of their own."""

import json
import os
import subprocess
import sys

from tegrascope.parsers.inference.events import Process

SETTLE = """
import json, os, sys
from tegrascope.collectors.worker.child import settle
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.events import Process
try:
    settle(Process.model_validate_json(sys.argv[1]))
except UserError as error:
    sys.exit(str(error))
share = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
print(json.dumps([os.nice(0), sorted(os.sched_getaffinity(0)), share]))
"""


def settle(process=Process(), **environment):  # noqa: B008 - it is frozen
    """Settle in a child; return niceness, cores and share, or its error."""
    done = subprocess.run(
        [sys.executable, "-c", SETTLE, process.model_dump_json()],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def test_priority_and_cores_are_in_force():
    niceness, cores = os.nice(0), sorted(os.sched_getaffinity(0))
    assert settle() == [niceness, cores, None]
    process = Process(nice=2, cpus=cores[-1:])
    assert settle(process) == [min(niceness + 2, 19), cores[-1:], None]


def test_a_share_of_the_gpu_needs_a_server(tmp_path):
    process = Process(mps_percentage=40)
    assert "no MPS server runs" in settle(process, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))
    (tmp_path / "control").touch()
    assert settle(process, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path))[2] == "40"
