"""ai-energymeter as its README shows it, without the disk, whose probe needs root."""

from energymeter import EnergyMeter
from marks import Window


def main() -> None:
    """Measure one window."""
    window = Window()
    meter = EnergyMeter(ignore_disk=True, include_idle=True)
    window.wait()
    meter.begin()
    window.work()
    meter.end()
    window.answer(float(meter.get_total_joules_gpu()))


if __name__ == "__main__":
    main()
