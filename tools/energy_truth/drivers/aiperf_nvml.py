"""AIPerf's GPU telemetry: its NVML collector, and its accumulator's energy of a phase.

AIPerf begins to collect when it is configured and takes the energy of the phase from what it
collected. It prefers the energy counter and else multiplies mean power by time
(``EnergyEfficiencyAnalyzer``). The benchmark around it, which needs a model server, is left out.
"""

import asyncio
import time
from types import SimpleNamespace

from aiperf.gpu_telemetry.accumulator import GPUTelemetryAccumulator
from aiperf.gpu_telemetry.pynvml_collector import PyNVMLTelemetryCollector
from marks import Window


async def measure(window: Window) -> None:
    """Measure one window."""
    run = SimpleNamespace(cfg=SimpleNamespace(gpu_telemetry_disabled=False))
    accumulator = GPUTelemetryAccumulator(run=run, pub_client=None)

    async def take(records: list, _collector: str) -> None:
        for record in records:
            await accumulator.process_record(record)

    collector = PyNVMLTelemetryCollector(record_callback=take)
    await collector.initialize()
    await collector.start()
    await asyncio.to_thread(window.wait)
    begin_ns = time.time_ns()
    await asyncio.to_thread(window.work)
    end_ns = time.time_ns()
    # As its manager does when the last phase is complete.
    await collector.collect_and_process_metrics()
    await collector.stop()
    joules, counters = accumulator.total_energy_joules(begin_ns, end_ns)
    if counters and joules > 0:
        window.answer(joules)
        return
    watts, gauges = accumulator.total_power_watts(begin_ns, end_ns)
    if gauges and watts > 0:
        window.answer(watts * (end_ns - begin_ns) / 1e9)
    else:
        window.answer(None, "neither a counter nor power")


if __name__ == "__main__":
    asyncio.run(measure(Window()))
