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
# The archives of outputs in the scratch directory.
_REFERENCE, _OUTPUTS = "reference.npz", "outputs.npz"


class _OutOfBuildsError(Exception):
    """No further engine may be built."""


def search(
    names: Sequence[str], is_right: Callable[[Sequence[str]], bool], most_trials: int
) -> tuple[SearchVerdict, tuple[str, ...]]:
    """Return the fewest layers that have to be held for right outputs, in the order of ``names``.

    It halves the set until none can be left out. The set that is returned was tried, and was right.
    That none of it can be left out holds if a set that makes the outputs right does so with more
    layers too. For k layers of n it takes about 2 k log2(n / k) engines.

    >>> search("abcdefgh", lambda held: {"c", "f"} <= set(held), 50)
    ('found', ('c', 'f'))
    """
    known: dict[frozenset[str], bool] = {}

    def try_out(held: Sequence[str]) -> bool:
        key = frozenset(held)
        if key not in known:
            if len(known) >= most_trials:
                raise _OutOfBuildsError
            known[key] = is_right(held)
        return known[key]

    try:
        if try_out([]):
            return "none_needed", ()
        if not names or not try_out(names):
            return "not_enough", ()
        return "found", tuple(_fewest([], names, try_out))
    except _OutOfBuildsError:
        right = [held for held, was_right in known.items() if was_right]
        smallest = min(right, key=len, default=frozenset[str]())
        return "stopped", tuple(name for name in names if name in smallest)


def _fewest(
    held: Sequence[str], names: Sequence[str], is_right: Callable[[Sequence[str]], bool]
) -> list[str]:
    """Return those of ``names`` that are needed beside ``held``."""
    if is_right(held):
        return []
    if len(names) == 1:
        return list(names)
    middle = len(names) // 2
    first, second = names[:middle], names[middle:]
    of_second = _fewest([*held, *first], second, is_right)
    of_first = _fewest([*held, *of_second], first, is_right)
    return [*of_first, *of_second]


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
    trials: list[Trial] = []
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="tegrascope-")))
        say("reference outputs by ONNX Runtime on the CPU")
        with closing(Executor("cpu")) as executor:
            _run(executor, _reference_of(order, folder / _REFERENCE))
        executor = resources.enter_context(closing(Executor(order.device)))

        def is_right(held: Sequence[str]) -> bool:
            held_precisions = order.layer_precisions | dict.fromkeys(held, hold)
            changes = {"layer_precisions": held_precisions}
            try:
                built = _build(executor, order.model_copy(update=changes), folder)
            except UserError as error:
                # The first two, with no layer and with all of them, show whether any can be built.
                if len(trials) < len(("none", "all")):
                    raise
                trial = Trial(held=len(held), is_right=False, reason=error.message)
            else:
                check = _check(folder, built, tolerance)
                trial = Trial(
                    held=len(held),
                    is_right=check.verdict == "good",
                    relative_error=check.relative_error,
                    reason=check.reason,
                )
            trials.append(trial)
            say(_in_words(len(trials), trial, hold))
            return trial.is_right

        verdict, layers = search(names, is_right, most_builds)
    return PrecisionSearch(
        model=order.model,
        device=order.device,
        precision=precision,
        hold=hold,
        limit=limit,
        verdict=verdict,
        layers=layers,
        candidates=len(names),
        trials=tuple(trials),
    )


def _build(executor: Executor, order: Order, folder: Path) -> Built | None:
    """Build an engine and run it once."""
    outputs, engines = folder / _OUTPUTS, folder / "engines"
    outputs.unlink(missing_ok=True)
    for plan in engines.glob("*.plan"):
        plan.unlink()  # no other trial needs it, and all of them together would fill a disk
    changes = {
        "run_id": new_run_id(),
        "engine_directory": str(engines),
        "outputs_file": str(outputs),
    }
    return _run(executor, order.model_copy(update=changes))


def _check(folder: Path, built: Built | None, tolerance: float | None) -> OutputCheck:
    """Compare the outputs with the reference; raise ``UserError`` if they cannot be judged."""
    check = check_outputs(folder / _REFERENCE, folder / _OUTPUTS, built, tolerance=tolerance)
    if check.verdict == "meaningless":
        raise UserError(
            "int8 without calibration has made-up scales, so no outputs are right",
            "give --calibration: a cache, or inputs to make one from",
        )
    if check.verdict in ("unchecked", "unjudged"):
        remedy = "use backend: tensorrt" if check.verdict == "unchecked" else "give --inputs DATA"
        raise UserError(f"outputs cannot be judged: {check.reason}", remedy)
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
