"""Any program as a back-end: it infers by itself, and may print how often."""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

from ...parsers.errors import UserError
from ...parsers.inference.events import Counted, Inferences, Order, Phase, inferences_in
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
    runs_programs = True

    def load(self, model: Path, order: Order) -> None:
        """Keep the program; it loads its model itself, each time."""
        if not order.program:
            raise UserError("the order names no program", "give command: in the workload")
        self._program = model

    def measure(self, order: Order, stop: Event) -> Iterator[Phase | Inferences | Counted]:
        """Run the program until time or count are reached; a failed run is not part of it."""
        begin_ns = end_ns = time.monotonic_ns()
        yield Phase(run_id=order.run_id, phase="steady", edge="begin", at_ns=begin_ns)
        total: int | None = None
        is_enough = False
        problem: UserError | None = None
        while not (is_enough or stop.is_set()):
            count, problem = self._run_once(order, stop)
            if problem is not None:
                break
            end_ns = time.monotonic_ns()
            total = total if count is None else (total or 0) + count
            if order.count is None:
                is_enough = end_ns - begin_ns >= (order.duration_seconds or 0.0) * 1e9
            else:
                is_enough = (total or 0) >= order.count
                if not count:
                    problem = UserError(
                        "the program prints no inferences, so their count is never reached",
                        "let it print tegrascope: inferences=N, or give duration",
                    )
                    break
        if stop.is_set():
            return
        if end_ns > begin_ns:
            yield Counted(run_id=order.run_id, inferences=total)
            yield Phase(run_id=order.run_id, phase="steady", edge="end", at_ns=end_ns)
        if problem is not None:
            raise problem

    def _run_once(self, order: Order, stop: Event) -> tuple[int | None, UserError | None]:
        """Run the program to its end; return the inferences that it printed, and its failure."""
        argv = [str(self._program), *order.program[1:]]
        env = {"TEGRASCOPE_RUN_ID": order.run_id, "TEGRASCOPE_DEVICE": order.device}
        total: int | None = None
        with start_tied(argv, env) as child:
            while (line := child.read(_POLL_SECONDS)) is not Quiet.END and not stop.is_set():
                if isinstance(line, Stamped):
                    count = inferences_in(line.value)
                    total = total if count is None else (total or 0) + count
        return total, None if child.returncode == 0 or stop.is_set() else _failure(child)


def _failure(child: LineChild) -> UserError:
    code = child.returncode
    how = f"was ended by signal {-code}" if code and code < 0 else f"ended with status {code}"
    last = next((words for words in reversed(child.last_words) if words.strip()), None)
    return UserError(f"the program {how}", last or "run it by hand to see why")
