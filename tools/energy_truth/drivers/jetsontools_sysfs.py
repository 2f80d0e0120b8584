"""jetsontools as its users run it: ``with TegraStats(...)`` around the work."""

import os
import tempfile
import time
from pathlib import Path

from jetsontools import TegraData, TegraStats
from marks import Window

INTERVAL_MS = int(os.environ["ENERGY_TRUTH_INTERVAL_MS"])


def main() -> None:
    """Measure one window."""
    window = Window()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "tegrastats.txt"
        window.wait()
        with TegraStats(output, interval=INTERVAL_MS):
            begin = time.time()
            window.work()
            end = time.time()
        data = TegraData(output)
    data.filter([(begin, end)])
    # Mean power of the lines in the window times its duration, as trtutils does with jetsontools.
    window.answer(data.powerdraw["VDD_IN"].mean / 1000 * (end - begin))


if __name__ == "__main__":
    main()
