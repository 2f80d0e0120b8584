"""zeus as its README shows it: a ``ZeusMonitor``, and a window around the work."""

from marks import Window
from zeus.monitor import ZeusMonitor


def main() -> None:
    """Measure one window."""
    window = Window()
    monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[])
    window.wait()
    # There is no framework whose queue could be waited for.
    monitor.begin_window("work", sync_execution=False)
    window.work()
    result = monitor.end_window("work", sync_execution=False)
    window.answer(result.total_energy)


# zeus starts processes that import this file again.
if __name__ == "__main__":
    main()
