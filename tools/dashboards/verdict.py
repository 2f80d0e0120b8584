"""The answer to "DLA or GPU?": four numbers of the last good runs and a verdict."""

from .parts import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Panel, Query, Row, Step, Word
from .queries import SEL, TRUTH, TRUTH_QUERY, TRUTH_TEXT, at_best, dla_by_gpu, of_model
from .reasons import NO_PLACEMENT

_ENERGY = dla_by_gpu("energy_joules_per_inference", ',kind="gross"')
_MEDIAN = dla_by_gpu("latency_seconds", ',quantile="0.5"')
_PAIR = "{{model}}, batch {{batch}}, {{instance}}"
_WHICH = "Each side is the best of its workloads with this model and batch."

# Differences below this are called even. `bench` tests whether there is a difference at all.
_EVEN = (0.95, 1.05)


def _side(ratio: str) -> str:
    """Return 2 if the DLA takes less, 0 if the GPU does, and 1 if they are even."""
    less, more = _EVEN
    return f"(1 + (({ratio}) < bool {less}) - (({ratio}) > bool {more}))"


def _verdict() -> str:
    """Return the answer as a key of ``_ANSWERS``.

    A DLA run that did not use the DLA comes first, then both sides, then latency alone if energy
    is withheld.
    """
    unused = of_model(
        f'tegra_inference_quality_flag{{{SEL},device=~"dla.*",flag="dla_not_used"}}', "max"
    )
    return f"-1 * {unused} or 3 * {_side(_ENERGY)} + {_side(_MEDIAN)} or 10 + {_side(_MEDIAN)}"


_ANSWERS = (
    Word(-1, "DLA was not used", RED),
    Word(0, "GPU", BLUE),
    Word(1, "GPU: less energy, as fast", BLUE),
    Word(2, "DLA is faster, GPU takes less energy", ORANGE),
    Word(3, "GPU: faster, same energy", BLUE),
    Word(4, "Even: DLA leaves the GPU free", GREEN),
    Word(5, "DLA: faster, same energy", GREEN),
    Word(6, "DLA takes less energy, GPU is faster", ORANGE),
    Word(7, "DLA: less energy, as fast", GREEN),
    Word(8, "DLA", GREEN),
    Word(10, "GPU is faster, energy not known", GREY),
    Word(11, "As fast, energy not known", GREY),
    Word(12, "DLA is faster, energy not known", GREY),
)

_BELOW_1 = (Step(None, GREEN), Step(_EVEN[0], GREY), Step(_EVEN[1], PURPLE))

ANSWER = Row(
    "DLA or GPU?",
    (
        Panel(
            "stat",
            "DLA or GPU?",
            "By energy per inference and median latency of the last good runs. Less than 5 % apart "
            f"is even. {_WHICH} The GPU freed is a separate figure below.",
            (Query(_verdict(), _PAIR),),
            width=18,
            height=6,
            words=_ANSWERS,
        ),
        Panel(
            "stat",
            "Telemetry source",
            TRUTH_TEXT,
            (TRUTH_QUERY,),
            width=6,
            height=6,
            words=TRUTH,
        ),
        Panel(
            "stat",
            "Energy: DLA / GPU",
            "Gross module energy per inference. Below 100 % the DLA takes less. Withheld if a run "
            f"is too short, is aliased or overlapped another. {_WHICH}",
            (Query(_ENERGY, _PAIR),),
            unit="percentunit",
            width=6,
            height=6,
            steps=_BELOW_1,
        ),
        Panel(
            "stat",
            "Latency: DLA / GPU",
            f"Median of the last good run. Above 100 % the DLA is slower. {_WHICH}",
            (Query(_MEDIAN, _PAIR),),
            unit="percentunit",
            width=6,
            height=6,
            steps=_BELOW_1,
        ),
        Panel(
            "stat",
            "GPU freed",
            "GPU load with the model on the GPU minus GPU load with it on the DLA: free "
            "capacity for other work. Below 0 the DLA's run used the GPU more, for example "
            "because many layers fell back.",
            (
                Query(
                    f"{at_best('gpu_utilization_ratio', 'gpu')}"
                    f" - {at_best('gpu_utilization_ratio', 'dla.*')}",
                    _PAIR,
                ),
            ),
            unit="percentunit",
            width=6,
            height=6,
            steps=(Step(None, RED), Step(0, GREY), Step(0.1, GREEN)),
        ),
        Panel(
            "stat",
            "Layers on the DLA",
            "Share of the computing layers that run on the DLA, as the build reports it. Layers"
            " that fell back run on the GPU and use its time.",
            (
                Query(
                    of_model(
                        f'tegra_inference_layers{{{SEL},device=~"dla.*",placement="dla"}}'
                        " / ignoring (placement) "
                        f'sum without (placement) (tegra_inference_layers{{{SEL},device=~"dla.*",'
                        'placement=~"dla|gpu"})',
                        "max",
                    ),
                    _PAIR,
                    NO_PLACEMENT,
                ),
            ),
            unit="percentunit",
            width=6,
            height=6,
            steps=(Step(None, RED), Step(0.5, ORANGE), Step(1, GREEN)),
        ),
    ),
)
