"""The answer to "DLA or GPU?": four numbers of the last good runs, and a word for them."""

from .parts import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Panel, Query, Row, Step, Word
from .queries import SEL, TRUTH, TRUTH_QUERY, TRUTH_TEXT, at_best, dla_by_gpu, of_model
from .reasons import NO_PLACEMENT

_ENERGY = dla_by_gpu("energy_joules_per_inference", ',kind="gross"')
_MEDIAN = dla_by_gpu("latency_seconds", ',quantile="0.5"')
_PAIR = "{{model}}, batch {{batch}}, {{instance}}"
_WHICH = "Each side is the best of its workloads with this model and batch."

# Less than this apart is called even; whether it differs at all is for `bench` to say.
_EVEN = (0.95, 1.05)


def _side(ratio: str) -> str:
    """Return 2 where the DLA takes less, 0 where the GPU does, 1 where they are even."""
    less, more = _EVEN
    return f"(1 + (({ratio}) < bool {less}) - (({ratio}) > bool {more}))"


def _verdict() -> str:
    """Return the answer as a number that ``_ANSWERS`` has the words for.

    A DLA run in which the DLA did nothing comes first; then both sides; then latency alone, where
    energy is withheld.
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
            "By energy per inference and median latency of the last good runs; within 5 % is even. "
            f"{_WHICH} The GPU freed stands below and is worth something of its own.",
            (Query(_verdict(), _PAIR),),
            width=18,
            height=6,
            words=_ANSWERS,
        ),
        Panel(
            "stat",
            "Telemetry is of",
            TRUTH_TEXT,
            (TRUTH_QUERY,),
            width=6,
            height=6,
            words=TRUTH,
        ),
        Panel(
            "stat",
            "Energy: DLA / GPU",
            "Module energy of one inference, gross: below 100 % the DLA takes less. Withheld where "
            f"a run is too short or overlapped another. {_WHICH}",
            (Query(_ENERGY, _PAIR),),
            unit="percentunit",
            width=6,
            height=6,
            steps=_BELOW_1,
        ),
        Panel(
            "stat",
            "Latency: DLA / GPU",
            f"Median of the last good run: above 100 % the DLA is slower. {_WHICH}",
            (Query(_MEDIAN, _PAIR),),
            unit="percentunit",
            width=6,
            height=6,
            steps=_BELOW_1,
        ),
        Panel(
            "stat",
            "GPU freed",
            "GPU load with the model on the GPU, less that with it on the DLA: what other work "
            "could have. Below 0 the DLA's run kept the GPU busier, as with many layers that fell "
            "back.",
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
            "Of the layers that compute, by the build's own words; what fell back runs on the GPU "
            "and takes of it.",
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
