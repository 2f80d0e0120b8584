"""carbontracker as its README shows it: one epoch around the work."""

from carbontracker import constants
from carbontracker.tracker import CarbonTracker
from marks import Window

JOULES_PER_KWH = 3.6e6


def main() -> None:
    """Measure one window."""
    window = Window()
    # Without a prediction and its look-up of today's carbon intensity in the network.
    tracker = CarbonTracker(epochs=2, epochs_before_pred=0, components="gpu", verbose=0)
    window.wait()
    tracker.epoch_start()
    window.work()
    tracker.epoch_end()
    kilowatt_hours = float(tracker.tracker.total_energy_per_epoch().sum())
    # It publishes the energy of a data centre: the GPU's times this number.
    window.answer(kilowatt_hours * JOULES_PER_KWH / constants.PUE_2023)
    tracker.tracker.stop()


if __name__ == "__main__":
    main()
