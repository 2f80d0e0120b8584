"""One run of a model as a bench makes it: ``python tests/truth/one_run.py MODEL BATCH``.

It prints what was said, then how the run ended and the largest anonymous memory of worker and of
this process in MiB. It imports no more than a bench does before its first run.
"""

import contextlib
import json
import logging
import re
import sys
from pathlib import Path
from threading import Event, Thread

from tegrascope.daemon.session.executor import Executor
from tegrascope.parsers.inference.events import Order, Progress, RunEvent

SECONDS = 120.0


def main(model: Path, batch: int) -> None:
    """Run three inferences and print the findings as one JSON object."""
    order = Order(
        run_id="fits",
        backend="onnxruntime",
        device="cpu",
        model=str(model),
        model_directory=str(model.parent),
        batch=batch,
        warm_up_seconds=0.0,
        count=3,
    )
    logging.basicConfig(stream=sys.stdout, format="%(message)s", force=True)

    def hear(event: RunEvent) -> None:
        if isinstance(event, Progress):
            print(event.doing, flush=True)

    peaks = [0.0]
    ended = Event()
    executor = Executor("cpu")
    watch = Thread(target=_watch, args=(executor, peaks, ended))
    watch.start()
    try:
        finished = executor.run(order, SECONDS, hear)
    finally:
        ended.set()
        watch.join()
        executor.close()
    own = _anonymous("self")
    print(json.dumps({"outcome": finished.outcome, "worker": peaks[0], "own": own}))


def _watch(executor: Executor, peaks: list[float], ended: Event) -> None:
    """Note the largest anonymous memory of the worker."""
    while not ended.wait(0.001):
        with contextlib.suppress(OSError):
            peaks[0] = max(peaks[0], _anonymous(str(executor.pid)))


def _anonymous(process: str) -> float:
    """Return the anonymous memory of a process in MiB; 0 if it has none any more."""
    found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
