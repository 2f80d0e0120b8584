"""Priority and cores, brought into force in a process of their own."""

import json
import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

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
print(json.dumps([os.nice(0), sorted(os.sched_getaffinity(0))]))
"""


def settle(process=Process()):  # noqa: B008 - it is frozen
    """Settle in a child; return niceness and cores, or its error."""
    done = subprocess.run(
        [sys.executable, "-c", SETTLE, process.model_dump_json()],
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def test_priority_and_cores_are_in_force():
    niceness, cores = os.nice(0), sorted(os.sched_getaffinity(0))
    assert settle() == [niceness, cores]
    process = Process(nice=2, cpus=cores[-1:])
    assert settle(process) == [min(niceness + 2, 19), cores[-1:]]


def test_stored_runs_with_a_share_of_the_gpu_that_was_not_set_are_read():
    assert Process.model_validate({"nice": 3, "mps_percentage": None}) == Process(nice=3)


def test_share_of_the_gpu_is_refused():
    with pytest.raises(ValidationError, match="mps_percentage"):
        Process.model_validate({"mps_percentage": 50})
