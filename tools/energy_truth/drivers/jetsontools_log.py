"""jetsontools on recorded logs: mean power of the lines in the window times its duration.

That is how trtutils 0.6.1 computes an energy from jetsontools. The total is ``VDD_IN`` where the
board prints it, else the sum of the two totals that ``get_powerdraw`` computes.
"""

import csv
import json
import sys
from pathlib import Path

from jetsontools import TegraData


def joules_of(folder: Path) -> float:
    """Return the energy of the run of one world."""
    with (folder / "runs.csv").open(encoding="ascii") as table:
        (run,) = csv.DictReader(table)
    begin, end = float(run["start"]), float(run["end"])
    data = TegraData(folder / "tegrastats.log")
    data.filter([(begin, end)])
    powers = data.powerdraw
    if "VDD_IN" in powers:
        milliwatts = powers["VDD_IN"].mean
    else:
        milliwatts = powers["VDD_TOTAL"].mean + powers["VIN_TOTAL"].mean
    return milliwatts / 1000 * (end - begin)


for name in sys.argv[1:]:
    answer: dict[str, object] = {"world": Path(name).name}
    try:
        answer["joules"] = joules_of(Path(name))
    except Exception as error:  # whatever the tool raises is its answer
        answer["reason"] = f"{type(error).__name__}: {error}"
    print(json.dumps(answer))
