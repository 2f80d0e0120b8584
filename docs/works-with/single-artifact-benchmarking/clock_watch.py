"""``sab/clock_watch.py`` of roboflow's single_artifact_benchmarking, for a Jetson with tegrascope.

Copy this file over theirs, which loads NVML and calls nvidia-smi. A pass is throttled if the
kernel counted a thermal or an over-current event in it, or if such a limit was in force at its
start or its end. A governor that lowers the clock of an idle GPU does not throttle. If a reading
fails, the pass fails: without a watcher no pass is called clean.

It changes no clocks: run ``sudo jetson_clocks`` before. The daemon has to run on the board, with
the kernel's counters (``telemetry: {sysfs: true}``, the default). Its address is in
``TEGRASCOPE_URL``, http://127.0.0.1:9754 by default, or https://USER:PASSWORD@robot:9754 with the
authority of its certificate in ``TEGRASCOPE_CA_FILE``.
"""

import base64
import json
import os
import ssl
import time
import urllib.request
from urllib.parse import unquote, urlsplit

from prometheus_client.parser import text_string_to_metric_families

DEFAULT_URL = "http://127.0.0.1:9754"
ANSWER_BYTES = 16 << 20
ANSWER_SECONDS = 10.0
# The daemon keeps a step per line of telemetry; it answers with at most this many.
STEPS = 1000
SHORTEST_STEP_SECONDS = 2.0
# Below this load the governor may lower the clock without any harm.
BUSY_RATIO = 0.5


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


def ask(path):
    """Return the text of a page of the daemon.

    Raises:
        OSError: It does not answer.
        ValueError: The page is too long.
    """
    with open_page(path) as answer:
        page = answer.read(ANSWER_BYTES + 1)
    if len(page) > ANSWER_BYTES:
        raise ValueError(f"{path} of tegrascope has more than {ANSWER_BYTES} bytes")
    return page.decode()


def read_limits():
    """Return the events so far, and whether a limit is in force, each by its kind.

    Raises:
        ValueError: The daemon shows no counters, or has no fresh samples.
    """
    ask("/readyz")
    events, active = {}, {}
    for family in text_string_to_metric_families(ask("/metrics")):
        for sample in family.samples:
            if sample.name == "tegra_throttle_events_total":
                events[sample.labels["kind"]] = sample.value
            if sample.name == "tegra_throttle_active":
                active[sample.labels["kind"]] = sample.value
    if not events:
        raise ValueError("no counters of throttling: set telemetry: {sysfs: true} in tegrascope")
    return events, active


class ThrottleMonitor:
    """Watches one pass; the methods are those of SAB's own class."""

    def __init__(self, target_freq=None):
        """Take a clock in MHz, below which a busy GPU is reported; None reports none."""
        self._target_mhz = target_freq
        self._events, self._active = {}, {}
        self._since = 0.0

    def __enter__(self):
        self.monitor_throttling(self._target_mhz)
        return self

    def __exit__(self, *_):
        self.stop()

    def monitor_throttling(self, target_freq=None):
        """Begin a pass."""
        self._target_mhz = target_freq
        self._events, self._active = read_limits()
        self._since = time.time()

    def stop(self):
        """End it: nothing runs in between, because the daemon counts."""

    def did_throttle(self):
        """Return whether this pass was throttled so far, and print what limited it."""
        events, active = read_limits()
        kinds = set()
        for kind, count in events.items():
            # A counter that is lower was reset with its daemon or its kernel.
            if count != self._events.get(kind) or active.get(kind) or self._active.get(kind):
                kinds.add(kind)
        clocks = self.busy_clocks()
        if clocks and self._target_mhz and clocks[0] < self._target_mhz:
            print(f"GPU clock {clocks[0]:.0f} to {clocks[1]:.0f} MHz, wanted {self._target_mhz}")
        if kinds:
            print(f"throttled: {', '.join(sorted(kinds))}")
        return bool(kinds)

    def busy_clocks(self):
        """Return the lowest and highest clock of the busy GPU in MHz; None if it was idle."""
        step = max(SHORTEST_STEP_SECONDS, (time.time() - self._since) / STEPS)
        answer = json.loads(ask(f"/api/v1/series?since={self._since:.3f}&step={step:.3f}"))
        clocks = []
        for part in answer["parts"]:
            columns = part["columns"]
            if "hertz/gpu" not in columns or "ratio/gpu" not in columns:
                continue
            clock, load = columns.index("hertz/gpu"), columns.index("ratio/gpu")
            for _, means, _ in part["rows"]:
                if means[load] is not None and means[load] >= BUSY_RATIO and means[clock]:
                    clocks.append(means[clock] / 1e6)
        if not clocks:
            return None
        return min(clocks), max(clocks)
