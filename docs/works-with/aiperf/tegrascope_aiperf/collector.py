"""The collector: ``aiperf profile --gpu-telemetry tegrascope …``.

``TEGRASCOPE_URL`` names the daemon, http://127.0.0.1:9754 by default; with a user it is
https://USER:PASSWORD@robot:9754, and ``TEGRASCOPE_CA_FILE`` is the authority of its certificate.

AIPerf has a protocol for collectors of GPUs and none for boards. So a board is a GPU here, whose
name says that it is a whole module.
"""

import asyncio
import base64
import contextlib
import os
import ssl
import time
import urllib.request
from urllib.parse import unquote, urlsplit

from aiperf.common.models import ErrorDetails, TelemetryMetrics, TelemetryRecord
from prometheus_client.parser import text_string_to_metric_families

DEFAULT_URL = "http://127.0.0.1:9754"
PAGE_BYTES = 4 << 20
ANSWER_SECONDS = 5.0
# No new sample for so long: the counter stands still, and its energy would be too small.
STALE_SECONDS = 10.0
MEGAJOULES = 1e-6


class TegrascopeCollector:
    """Reads the energy counter of a daemon; the power is the mean between two readings."""

    def __init__(
        self, collection_interval=0.333, record_callback=None, error_callback=None,
        collector_id="tegrascope_collector",
    ):  # fmt: skip
        """Take what AIPerf gives each local collector; the interval is in seconds."""
        address = urlsplit(os.environ.get("TEGRASCOPE_URL", DEFAULT_URL))
        self.id = collector_id
        # Without the password: AIPerf writes it into its export.
        self.endpoint_url = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        self._host = address.hostname or ""
        self._interval = collection_interval
        self._on_records, self._on_error = record_callback, error_callback
        self._headers = {}
        if address.username:
            user = f"{unquote(address.username)}:{unquote(address.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._context = None
        if address.scheme == "https":
            self._context = ssl.create_default_context(cafile=os.environ.get("TEGRASCOPE_CA_FILE"))
        self._last = None
        self._advanced_at = time.monotonic()
        self._task = None

    @classmethod
    def validate_environment(cls):
        """Need nothing of this machine: the daemon may be on another one."""

    async def initialize(self):
        """Begin to read at each interval, until ``stop``.

        AIPerf calls this when it is configured, and ``start`` with the first request or later. It
        counts the energy of a benchmark from the last reading before the first request, which
        would be one of many seconds earlier.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._read_for_ever())

    async def is_url_reachable(self):
        """Return whether the daemon has fresh samples."""
        try:
            await asyncio.to_thread(self._get, "/readyz")
        except (OSError, ValueError):
            return False
        return True

    async def start(self):
        """Do nothing more: it reads already."""

    async def stop(self):
        """End the readings."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def collect_and_process_metrics(self):
        """Read once, and give the record or the error to AIPerf."""
        try:
            record = await asyncio.to_thread(self._read)
        except (OSError, ValueError) as error:
            if self._on_error is not None:
                await self._on_error(ErrorDetails.from_exception(error), self.id)
            return
        if self._on_records is not None:
            await self._on_records([record], self.id)

    async def _read_for_ever(self):
        while True:
            await self.collect_and_process_metrics()
            await asyncio.sleep(self._interval)

    def _get(self, path):
        request = urllib.request.Request(self.endpoint_url + path, headers=self._headers)
        with urllib.request.urlopen(
            request, timeout=ANSWER_SECONDS, context=self._context
        ) as answer:
            page = answer.read(PAGE_BYTES + 1)
        if len(page) > PAGE_BYTES:
            raise ValueError(f"{self.endpoint_url}{path} has more than {PAGE_BYTES} bytes")
        return page.decode()

    def _read(self):
        """Return the record of this moment.

        Raises:
            OSError: The daemon does not answer.
            ValueError: It has no energy of the module, or no new sample.
        """
        values, about = {}, {}
        for family in text_string_to_metric_families(self._get("/metrics")):
            for sample in family.samples:
                if sample.name == "tegra_info":
                    about = sample.labels
                values.setdefault(sample.name, sample.value)
        taken_ns, now = time.time_ns(), time.monotonic()
        joules = values.get("tegra_module_energy_joules_total")
        observed = values.get("tegra_module_energy_observed_seconds_total")
        if joules is None or observed is None:
            raise ValueError(f"{self.endpoint_url} has no energy of the module: tegrascope doctor")
        metrics = TelemetryMetrics(nvidia_energy_consumption=joules * MEGAJOULES)
        if self._last is not None:
            seconds = observed - self._last[1]
            if seconds > 0:
                metrics.nvidia_power_usage = (joules - self._last[0]) / seconds
                self._advanced_at = now
            elif now - self._advanced_at > STALE_SECONDS:
                raise ValueError(f"{self.endpoint_url} has no new sample: see its /readyz")
        self._last = (joules, observed)
        return TelemetryRecord(
            timestamp_ns=taken_ns,
            telemetry_source_url=self.endpoint_url,
            gpu_index=0,
            gpu_uuid=f"tegrascope-{self._host}",
            gpu_model_name=f"{about.get('board') or 'Jetson'} (whole module)",
            hostname=self._host,
            # AIPerf adds up power and energy of the platforms that it knows.
            platform="nvidia",
            telemetry_data=metrics,
        )
