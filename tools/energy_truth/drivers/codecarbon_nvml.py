"""CodeCarbon as its users run it where there is no network: ``start`` and ``stop``."""

from codecarbon import OfflineEmissionsTracker
from marks import Window

JOULES_PER_KWH = 3.6e6


def main() -> None:
    """Measure one window."""
    window = Window()
    # Several trackers run at the same time here, which CodeCarbon otherwise refuses.
    tracker = OfflineEmissionsTracker(
        country_iso_code="DEU", save_to_file=False, log_level="error", allow_multiple_runs=True
    )
    window.wait()
    tracker.start()
    window.work()
    tracker.stop()
    window.answer(tracker.final_emissions_data.gpu_energy * JOULES_PER_KWH)


if __name__ == "__main__":
    main()
