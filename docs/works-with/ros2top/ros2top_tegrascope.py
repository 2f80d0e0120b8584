"""ros2top with the load of the DLA by node: ``python3 ros2top_tegrascope.py`` in ros2top's place.

ros2top shows no GPU of an Orin, because NVML gives none of its processes. Its columns stay ``--``:
the load of the whole GPU beside a node would be wrong. tegrascope knows which process submits to
which DLA, from the driver's trace. This adds it behind the name of the node, and the load of the
whole GPU to the bars above.

The daemon needs ``telemetry: {processes: {}, dla_trace: …}``. Its address is in
``TEGRASCOPE_URL``, http://127.0.0.1:9754 by default, or https://USER:PASSWORD@robot:9754 with the
authority of its certificate in ``TEGRASCOPE_CA_FILE``.
"""

import base64
import json
import os
import ssl
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
from ros2top import NodeMonitor, run_ui

DEFAULT_URL = "http://127.0.0.1:9754"
ANSWER_BYTES = 4 << 20
ANSWER_SECONDS = 2.0
ASKED_EVERY_SECONDS = 1.0
MARK = "  ["
MIB = 1 << 20


def open_page(path):
    """Return the open answer of the daemon, by the address, the user and the authority given."""
    address = urlsplit(os.environ.get("TEGRASCOPE_URL", DEFAULT_URL))
    request = urllib.request.Request(
        f"{address.scheme}://{address.netloc.rpartition('@')[2]}{path}"
    )
    if address.username:
        user = f"{unquote(address.username)}:{unquote(address.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
    context = None
    if address.scheme == "https":
        context = ssl.create_default_context(cafile=os.environ.get("TEGRASCOPE_CA_FILE"))
    return urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=context)


class Status:
    """The daemon's present state, asked for once per second at most; empty without an answer."""

    def __init__(self):
        """Begin with nothing."""
        self._asked_at = -ASKED_EVERY_SECONDS
        self._answer = {}

    def read(self):
        """Return the state."""
        now = time.monotonic()
        if now - self._asked_at >= ASKED_EVERY_SECONDS:
            self._asked_at, self._answer = now, {}
            try:
                with open_page("/api/v1/status") as answer:
                    self._answer = json.loads(answer.read(ANSWER_BYTES))
            except (OSError, ValueError):
                pass  # A daemon that does not answer leaves the columns of ros2top as they are.
        return self._answer


class BoardGpu:
    """ros2top's interface of a GPU, for the one of a Jetson: its load, and no process of it."""

    def __init__(self, status):
        """Take where the state is read."""
        self._status = status

    def is_available(self):
        """Return whether the daemon shows a load."""
        return self._ratio() is not None

    def get_gpu_count(self):
        """Return 1: a Jetson has one."""
        return int(self.is_available())

    def get_gpu_usage(self, pid):  # noqa: ARG002
        """Return that nothing is known of a process: ros2top then shows ``--``."""
        return 0, 0.0, -1

    def get_gpu_info(self, device_id):
        """Return load and memory, which CPU and GPU share."""
        ratio = self._ratio()
        if device_id or ratio is None:
            return None
        memory = psutil.virtual_memory()
        return {
            "name": "Jetson",
            "memory_total_mb": memory.total // MIB,
            "memory_used_mb": memory.used // MIB,
            "memory_free_mb": memory.available // MIB,
            "utilization_gpu": 100 * ratio,
            "utilization_memory": 0,
        }

    def shutdown(self):
        """End nothing."""

    def _ratio(self):
        return self._status.read().get("vital", {}).get("gpu_ratio")


def program_of(pid):
    """Return how tegrascope names the program of a process: Python with its script."""
    words = psutil.Process(pid).cmdline()
    if not words:
        return ""
    name = Path(words[0]).name
    scripts = [word for word in words[1:] if not word.startswith("-")]
    if name.startswith("python") and scripts:
        return f"{name} {Path(scripts[0]).name}"
    return name


class DlaNodes(NodeMonitor):
    """ros2top's monitor; the name of a node has the DLA load of its process behind it."""

    def __init__(self, status, **options):
        """Take where the state is read, and what ros2top's own monitor takes."""
        super().__init__(**options)
        self._status = status
        if not self.gpu_monitor.is_available():
            self.gpu_monitor = BoardGpu(status)

    def get_node_info_list(self):
        """Return ros2top's list with marked names."""
        nodes = super().get_node_info_list()
        loads = {}
        for process in self._status.read().get("processes", []):
            if process.get("dla"):
                cores = [f"DLA{core} {share:.0%}" for core, share in sorted(process["dla"].items())]
                # A container or a unit stands before the program.
                loads[process["name"].rpartition("/")[2]] = " ".join(cores)
        if not loads:
            return nodes
        programs = {}
        for pid in {node.pid for node in nodes}:
            try:
                programs[pid] = program_of(pid)
            except psutil.Error:
                programs[pid] = ""
        shared = Counter(programs.values())
        marked = []
        for node in nodes:
            program = programs[node.pid]
            if program in loads:
                # Processes of one program have one figure, which is that of all of them.
                of_all = f", {shared[program]} processes" if shared[program] > 1 else ""
                node = node._replace(name=f"{node.name}{MARK}{loads[program]}{of_all}]")
            marked.append(node)
        return marked

    def kill_process(self, node_name, pid=None, force=False):
        """End a node, by the name without the mark."""
        return super().kill_process(node_name.partition(MARK)[0], pid, force)


def main():
    """Run ros2top's screen."""
    monitor = DlaNodes(Status(), refresh_interval=0.1)
    try:
        return 0 if run_ui(monitor) else 1
    finally:
        monitor.cleanup()


if __name__ == "__main__":
    sys.exit(main())
