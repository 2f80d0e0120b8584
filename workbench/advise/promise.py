"""What the chosen placement promises of the whole pipeline, by the same figures as the advice."""

from dataclasses import replace
from pathlib import Path

from ... import __version__
from ...daemon.measure.report import Figure
from ...parsers.values import DLAS
from ..results.promise import Promise, PromisedModel
from .choices import Choices
from .problem import Evaluation, Problem, Term, sum_of


def promise_of(problem: Problem, choices: Choices, best: Evaluation) -> Promise:
    """Return the promise of a placement."""
    models = []
    for cell, demand in zip(enumerate(best.placement), problem.demands, strict=True):
        choice = choices.at(cell)
        model = PromisedModel(
            name=demand.name,
            device=choice.device,
            precision=choice.precision,
            variant=choice.variant,
            # Of the result itself: the directory in which it is read may be another one.
            source=str(Path(choice.source.path).absolute()),
        )
        models.append(model)
    cells = enumerate(best.placement)
    frames_per_second = max(demand.rate_per_second for demand in problem.demands)
    watts = _watts(problem, choices, best)
    return Promise(
        tegrascope=__version__,
        models=tuple(models),
        frames_per_second=frames_per_second,
        loads=_loads(problem, choices, best),
        joules_per_frame=watts and watts.times(1 / frames_per_second),
        simulated=any(choices.at(cell).source.result.is_simulated for cell in cells),
    )


def _loads(problem: Problem, choices: Choices, best: Evaluation) -> dict[str, Figure]:
    """Return the load of GPU and DLA cores: each model's own, for the share of time it works."""
    parts: dict[str, list[Term]] = {}
    for cell in enumerate(best.placement):
        choice = choices.at(cell)
        measured = choice.like or choice.device
        for name, load in choice.result.utilization.items():
            core, _, source = name.partition(":")
            if name == "gpu" or (core == measured in DLAS and source != "powered"):
                name = name.replace(measured, choice.device)
                parts.setdefault(name, []).append(Term(problem.share(cell), load))
    if len(parts.get("gpu", ())) < len(best.placement):
        parts.pop("gpu", None)  # the load of one of the models was not measured
    return {name: sum_of(terms) for name, terms in parts.items()}


def _watts(problem: Problem, choices: Choices, best: Evaluation) -> Figure | None:
    """Return the power of the module: idle, with models loaded, and the work of the placement.

    Net energy would count the error of the idle power twice, so gross energy is taken for the time
    of the work, and idle power for the rest. Power that only models together draw comes on top.
    """
    cells = tuple(enumerate(best.placement))
    parts: list[Term] = []
    for cell, demand in zip(cells, problem.demands, strict=True):
        option = choices.at(cell)
        gross, net = option.gross_joules, option.joules
        if gross is None or net is None:
            return None
        if not parts:
            # The same sensor read both, so idle power is as uncertain as that of the work.
            half = gross.times(1 / option.busy_seconds).half
            idle = Figure.around((gross.value - net.value) / option.busy_seconds, half)
            parts.append(Term(1.0 - sum(map(problem.share, cells)), idle))
        parts.append(Term(demand.rate_per_second, gross))
    evaluation = replace(problem, objective="energy").evaluate(best.placement)
    for key, term in evaluation.terms.items():
        if key not in cells:
            parts.append(term)
    return sum_of(parts)
