"""pyJoules as its documentation shows it: an ``EnergyMeter`` of the domain of one GPU."""

from marks import Window
from pyJoules.device.device_factory import DeviceFactory
from pyJoules.device.nvidia_device import NvidiaGPUDomain
from pyJoules.energy_meter import EnergyMeter


def main() -> None:
    """Measure one window."""
    window = Window()
    meter = EnergyMeter(DeviceFactory.create_devices([NvidiaGPUDomain(0)]))
    window.wait()
    meter.start(tag="work")
    window.work()
    meter.stop()
    (sample,) = meter.get_trace()
    window.answer(sum(sample.energy.values()) / 1000)


if __name__ == "__main__":
    main()
