"""zeus on a Jetson: the energy of the whole module, from the INA3221 of sysfs."""

from marks import Window
from zeus.monitor import ZeusMonitor


def main() -> None:
    """Measure one window."""
    window = Window()
    monitor = ZeusMonitor(gpu_indices=[], cpu_indices=[])
    window.wait()
    monitor.begin_window("work", sync_execution=False)
    window.work()
    result = monitor.end_window("work", sync_execution=False)
    soc = result.soc_energy
    if soc is None or soc.total_energy_mj is None:
        window.answer(None, "no energy of the module")
    else:
        window.answer(soc.total_energy_mj / 1000)


if __name__ == "__main__":
    main()
