"""Any program as a back-end: it infers by itself, and may print how often."""

import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from threading import Event

from ...parsers.errors import UserError
from ...parsers.inference.events import Counted, Inferences, Order, Phase, PrintedCounts
from ..base import Stamped
from ..children.process import LineChild, Quiet
from ..children.program import start_tied
from .base import SelfTimed

_POLL_SECONDS = 0.1


class Command(SelfTimed):
    """A program, run again and again until the steady phase is as long as it should be.

    A program that infers for longer than that is run once, to its own end. Its start is part of
    the steady phase, since nothing separates it from the inferences.
    """

    devices = ("gpu", "dla0", "dla1", "cpu", "external")
    runs = "command"

    def load(self, model: Path, order: Order) -> None:
        """Keep the program; it loads its model itself, each time."""
        if not order.program:
            raise UserError("the order names no program", "give command: in the workload")
        self._program = model

    def measure(self, order: Order, stop: Event) -> Iterator[Phase | Inferences | Counted]:
        """Run the program until time or count are reached; a failed run is not part of it."""
        begin_ns = end_ns = time.monotonic_ns()
        yield Phase(run_id=order.run_id, phase="steady", edge="begin", at_ns=begin_ns)
        tally = PrintedCounts(order.unit)
        is_enough = False
        problem: UserError | None = None
        while not (is_enough or stop.is_set()):
            before, so_far = tally.inferences, copy(tally)
            problem = self._run_once(order, stop, so_far)
            if problem is not None:
                break
            end_ns, tally = time.monotonic_ns(), so_far
            if order.count is None:
                is_enough = end_ns - begin_ns >= (order.duration_seconds or 0.0) * 1e9
            else:
                is_enough = (tally.inferences or 0) >= order.count
                if tally.inferences == before:
                    problem = UserError(
                        "the program prints no inferences, so their count is never reached",
                        "let it print tegrascope: inferences=N, or give duration",
                    )
                    break
        if stop.is_set():
            return
        if end_ns > begin_ns:
            if tally.unknown is not None:
                unit = "no unit" if order.unit is None else f"unit: {order.unit}"
                self.progress(f"prints {tally.unknown}=N, which is not counted, as it has {unit}")
            yield Counted(run_id=order.run_id, inferences=tally.inferences, units=tally.units)
            yield Phase(run_id=order.run_id, phase="steady", edge="end", at_ns=end_ns)
        if problem is not None:
            raise problem

    def _run_once(self, order: Order, stop: Event, tally: PrintedCounts) -> UserError | None:
        """Run the program to its end, add what it counts, and return its failure."""
        argv = [str(self._program), *order.program[1:]]
        env = {"TEGRASCOPE_RUN_ID": order.run_id, "TEGRASCOPE_DEVICE": order.device}
        with start_tied(argv, env) as child:
            while not stop.is_set():
                line = child.read(_POLL_SECONDS)
                if line is Quiet.END:
                    break
                if isinstance(line, Stamped):
                    tally.read(line.value)
        if child.returncode == 0 or stop.is_set():
            return None
        return _failure(child)


def _failure(child: LineChild) -> UserError:
    code = child.returncode
    what = f"the program ended with status {code}"
    if code is not None and code < 0:
        what = f"the program was ended by signal {-code}"
    for line in reversed(child.last_words):
        if line.strip():
            return UserError(what, line)
    return UserError(what, "run it by hand to see why")
