"""Which layers of a model must keep a higher precision, so that its outputs are right."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, PositiveInt

from ...collectors.models.files import find_model, node_names
from ...collectors.worker.outputs import LIMITS, OutputCheck, check_outputs
from ...daemon.session.executor import Executor
from ...daemon.settings.config import new_run_id
from ...parsers.errors import BackendUnavailable, UserError
from ...parsers.inference.events import MOST_LAYER_NAMES, Finished, Loaded, Order, RunEvent
from ...parsers.inference.layer_precisions import fits
from ...parsers.inference.placement import Built, Precision
from ...parsers.records import Record
from .settings import LOOK_SECONDS, REFERENCE

# ``none_needed``: outputs are right without any layer held. ``found``: they are right with these
# layers held, and wrong without any one of them. ``not_enough``: they are wrong with all held.
# ``stopped``: the builds ran out, and the smallest set so far is returned.
SearchVerdict = Literal["none_needed", "found", "not_enough", "stopped"]


class Trial(Record):
    """One engine: how many layers were held, and what its outputs were."""

    held: int
    is_right: bool
    relative_error: NonNegativeFloat | None = None
    reason: str | None = None


class PrecisionSearch(Record):
    """The result of a search; ``candidates`` is how many layers it could hold."""

    model: str
    device: str
    precision: Precision
    hold: Precision
    limit: NonNegativeFloat
    verdict: SearchVerdict
    layers: tuple[str, ...] = ()
    candidates: int
    trials: tuple[Trial, ...]


MOST_BUILDS = 100


class _OutOfBuildsError(Exception):
    """No further engine may be built."""


class _Halving:
    """Halves a set of layers until none can be left out; each set is tried once.

    The set that is left was tried, and was right. That none of it can be left out holds if a set
    that makes the outputs right does so with more layers too. For k layers of n it takes about
    2 k log2(n / k) engines.
    """

    def __init__(self, is_right: Callable[[Sequence[str]], bool], most_trials: int) -> None:
        self._is_right = is_right
        self._left = most_trials
        self._known: dict[frozenset[str], bool] = {}

    @property
    def smallest_right(self) -> frozenset[str] | None:
        """The smallest set that made the outputs right."""
        right = [names for names, is_right in self._known.items() if is_right]
        return min(right, key=len, default=None)

    def is_right(self, names: Sequence[str]) -> bool:
        """Return whether the outputs are right with these layers held."""
        key = frozenset(names)
        if key not in self._known:
            if self._left <= 0:
                raise _OutOfBuildsError
            self._left -= 1
            self._known[key] = self._is_right(names)
        return self._known[key]

    def fewest(self, held: Sequence[str], names: Sequence[str], *, is_new: bool) -> list[str]:
        """Return those of ``names`` that are needed beside ``held``.

        Args:
            is_new: Whether ``held`` has grown since it was last found too small.
        """
        if is_new and self.is_right(held):
            return []
        if len(names) == 1:
            return list(names)
        middle = len(names) // 2
        first, second = list(names[:middle]), list(names[middle:])
        of_second = self.fewest([*held, *first], second, is_new=True)
        of_first = self.fewest([*held, *of_second], first, is_new=bool(of_second))
        return [*of_first, *of_second]


def search(
    names: Sequence[str], is_right: Callable[[Sequence[str]], bool], most_trials: int
) -> tuple[SearchVerdict, tuple[str, ...]]:
    """Return the fewest layers that have to be held for right outputs, in the order of ``names``.

    >>> search("abcdefgh", lambda held: {"c", "f"} <= set(held), 50)
    ('found', ('c', 'f'))
    """
    halving = _Halving(is_right, most_trials)
    try:
        if halving.is_right([]):
            return "none_needed", ()
        if not names or not halving.is_right(names):
            return "not_enough", ()
        return "found", tuple(halving.fewest([], names, is_new=False))
    except _OutOfBuildsError:
        smallest = halving.smallest_right or frozenset()
        return "stopped", tuple(name for name in names if name in smallest)


def candidates_of(model: Path, among: Sequence[str]) -> list[str]:
    """Return the nodes of a model that may be held, or raise ``UserError`` if they are too many.

    ``among`` are names with ``*`` for any text; without any, all nodes are meant.
    """
    found = []
    for name in dict.fromkeys(node_names(model)):
        if not among or any(fits(pattern, name) for pattern in among):
            found.append(name)
    if not found:
        raise UserError(f"no node of {model} is named so", "see tegrascope inspect MODEL --all")
    if len(found) > MOST_LAYER_NAMES:
        raise UserError(
            f"{model} has {len(found)} nodes, and at most {MOST_LAYER_NAMES} can be held by name",
            "search a part of them: --among 'NAME*'",
        )
    return found


def find_layers_to_hold(
    order: Order,
    hold: Precision,
    say: Callable[[str], None],
    *,
    among: Sequence[str] = (),
    tolerance: float | None = None,
    most_builds: PositiveInt = MOST_BUILDS,
    make_executor: Callable[[str], Executor] = Executor,
) -> PrecisionSearch:
    """Find the fewest layers that have to be held at a precision for right outputs.

    Right is what ``bench`` calls so: near the outputs of ONNX Runtime, for the inputs of the order.

    Args:
        order: One inference by a back-end that returns outputs, in a precision.
        tolerance: Largest relative error of right outputs; the usual one of the precision if None.

    Raises:
        BackendUnavailable: The device is not on this machine.
        UserError: The model cannot be built, or its outputs cannot be judged.
    """
    precision = order.precision or "fp16"
    limit = LIMITS[precision].whole if tolerance is None else tolerance
    names = candidates_of(find_model(order.model, Path(order.model_directory)), among)
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="tegrascope-")))
        say("reference outputs by ONNX Runtime on the CPU")
        with closing(make_executor("cpu")) as executor:
            _run(executor, _reference_of(order, folder / "reference.npz"))
        executor = resources.enter_context(closing(make_executor(order.device)))
        engines = _Engines(executor, order, hold, tolerance, folder, say)
        verdict, layers = search(names, engines.is_right, most_builds)
    return PrecisionSearch(
        model=order.model,
        device=order.device,
        precision=precision,
        hold=hold,
        limit=limit,
        verdict=verdict,
        layers=layers,
        candidates=len(names),
        trials=tuple(engines.trials),
    )


class _Engines:
    """Builds an engine for each set of held layers, and compares its outputs."""

    def __init__(
        self,
        executor: Executor,
        order: Order,
        hold: Precision,
        tolerance: float | None,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self._executor, self._order, self._hold = executor, order, hold
        self._tolerance, self._folder, self._say = tolerance, folder, say
        self.trials: list[Trial] = []

    def is_right(self, held: Sequence[str]) -> bool:
        """Return whether the outputs are right; an engine that cannot be built has none.

        The first two, with no layer and with all of them, show whether any can be built, so their
        errors are raised. Outputs that cannot be judged are an error of the whole search.
        """
        try:
            built = self._build(held)
        except UserError as error:
            if len(self.trials) < len(("none", "all")):
                raise
            trial = Trial(held=len(held), is_right=False, reason=error.message)
        else:
            check = self._check(built)
            trial = Trial(
                held=len(held),
                is_right=check.verdict == "good",
                relative_error=check.relative_error,
                reason=check.reason,
            )
        self.trials.append(trial)
        self._say(_in_words(len(self.trials), trial, self._hold))
        return trial.is_right

    def _build(self, held: Sequence[str]) -> Built | None:
        """Build an engine and run it once."""
        outputs, engines = self._folder / "outputs.npz", self._folder / "engines"
        outputs.unlink(missing_ok=True)
        for plan in engines.glob("*.plan"):
            plan.unlink()  # no other trial needs it, and all of them together would fill a disk
        changes = {
            "run_id": new_run_id(),
            "engine_directory": str(engines),
            "layer_precisions": self._order.layer_precisions | dict.fromkeys(held, self._hold),
            "outputs_file": str(outputs),
        }
        return _run(self._executor, self._order.model_copy(update=changes))

    def _check(self, built: Built | None) -> OutputCheck:
        """Compare the outputs; raise ``UserError`` if they cannot be judged."""
        reference, outputs = self._folder / "reference.npz", self._folder / "outputs.npz"
        check = check_outputs(reference, outputs, built, tolerance=self._tolerance)
        if check.verdict == "meaningless":
            raise UserError(
                "int8 without calibration has made-up scales, so no outputs are right",
                "give --calibration: a cache, or inputs to make one from",
            )
        if check.verdict == "unchecked":
            raise UserError(f"outputs cannot be judged: {check.reason}", "use backend: tensorrt")
        if check.verdict == "unjudged":
            raise UserError(f"outputs cannot be judged: {check.reason}", "give --inputs DATA")
        return check


def _reference_of(order: Order, outputs: Path) -> Order:
    """Return the order of one inference of the same inputs by ONNX Runtime on the CPU."""
    return Order(
        run_id=new_run_id(),
        backend=REFERENCE,
        device="cpu",
        model=order.model,
        model_directory=order.model_directory,
        batch=order.batch,
        shapes=order.shapes,
        preprocess=order.preprocess,
        inputs_file=order.inputs_file,
        outputs_file=str(outputs),
        warm_up_seconds=0.0,
        count=1,
    )


def _run(executor: Executor, order: Order) -> Built | None:
    """Carry out an order and return what was built, or raise ``UserError`` if it fails."""
    built: Built | None = None

    def on_event(event: RunEvent) -> None:
        nonlocal built
        if isinstance(event, Loaded):
            built = event.built

    finished: Finished = executor.run(order, LOOK_SECONDS, on_event)
    if finished.outcome == "ok":
        return built
    words = finished.reason or finished.outcome
    remedy = "tegrascope engines build, with the same options, shows the worker's log"
    if finished.skip_reason == "unavailable":
        raise BackendUnavailable(words, remedy)
    raise UserError(words, remedy)


def _in_words(number: int, trial: Trial, hold: Precision) -> str:
    word = "right" if trial.is_right else "wrong"
    line = f"engine {number}: {trial.held} nodes at {hold}: {word}"
    if trial.relative_error is not None:
        line += f", off by {trial.relative_error:.2%}"
    elif trial.reason is not None:
        line += f" ({trial.reason})"
    return line
