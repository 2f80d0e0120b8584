"""The answer to "DLA or GPU?": a verdict for each model, and four numbers of the last good runs."""

from .device import WHERE
from .parts import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, Column, Panel, Query, Row, Step, Word
from .queries import SEL, TIMES, at_best, dla_by_gpu, of_model

_ENERGY = dla_by_gpu("energy_joules_per_inference", ',kind="gross"')
_NET = dla_by_gpu("energy_joules_per_inference", ',kind="net"')
_MEDIAN = dla_by_gpu("latency_seconds", ',quantile="0.5"')
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
    is withheld. Last are models without a good run on one of the two.
    """
    unused = of_model(
        f'tegra_inference_quality_flag{{{SEL},device=~"dla.*",flag="dla_not_used"}}', "max"
    )
    either = at_best("latency_seconds", "dla.*|gpu", ',quantile="0.5"')
    return (
        f"-1 * {unused} or 3 * {_side(_ENERGY)} + {_side(_MEDIAN)} or 10 + {_side(_MEDIAN)}"
        f" or 20 + 0 * {either}"
    )


_ANSWERS = (
    Word(-1, "DLA was not used", RED),
    Word(0, "GPU", BLUE),
    Word(1, "GPU: less energy, as fast", BLUE),
    Word(2, "DLA is faster, GPU takes less energy", ORANGE),
    Word(3, "GPU: faster, same energy", BLUE),
    Word(4, "Even, and the DLA frees the GPU", GREEN),
    Word(5, "DLA: faster, same energy", GREEN),
    Word(6, "DLA takes less energy, GPU is faster", ORANGE),
    Word(7, "DLA: less energy, as fast", GREEN),
    Word(8, "DLA", GREEN),
    Word(10, "GPU is faster, energy not known", GREY),
    Word(11, "As fast, energy not known", GREY),
    Word(12, "DLA is faster, energy not known", GREY),
    Word(20, "No run on one of the two", GREY),
)

_BELOW_1 = (Step(None, GREEN), Step(_EVEN[0], GREY), Step(_EVEN[1], PURPLE))
_GPU_FREED = (
    f"{at_best('gpu_utilization_ratio', 'gpu')} - {at_best('gpu_utilization_ratio', 'dla.*')}"
)
_ON_DLA = of_model(
    f'tegra_inference_layers{{{SEL},device=~"dla.*",placement="dla"}} / ignoring (placement) '
    f'sum without (placement) (tegra_inference_layers{{{SEL},device=~"dla.*",'
    'placement=~"dla|gpu"})',
    "max",
)

ANSWER = Row(
    "DLA or GPU?",
    (
        Panel(
            "table",
            "DLA or GPU?",
            "By energy per inference and median latency of the last good runs, DLA over GPU: "
            f"below 1 the DLA takes less. Less than 5 % apart is even. {_WHICH} The verdict "
            "takes gross energy (whole module). Net energy (above idle) stands beside it and can "
            "name the other device: it counts where the board is on anyway. Energy is "
            "withheld if a run is too short, is aliased or "
            "overlapped another. GPU freed: GPU load with the model on the GPU minus that with it "
            "on the DLA. Layers on the DLA: share of the computing layers, as the build reports.",
            (
                Query(_verdict()),
                Query(_ENERGY),
                Query(_MEDIAN),
                Query(_GPU_FREED),
                Query(_ON_DLA),
                Query(_NET),
            ),
            width=24,
            height=8,
            columns=(
                Column("model", "Model"),
                Column("batch", "Batch"),
                Column("A", "Verdict (gross)", words=_ANSWERS),
                Column("B", "Gross, DLA / GPU", TIMES, steps=_BELOW_1),
                Column("F", "Net, DLA / GPU", TIMES, steps=_BELOW_1),
                Column("C", "Latency, DLA / GPU", TIMES, steps=_BELOW_1),
                Column(
                    "D",
                    "GPU freed",
                    "percentunit",
                    steps=(Step(None, RED), Step(0, GREY), Step(0.1, GREEN)),
                ),
                Column(
                    "E",
                    "Layers on the DLA",
                    "percentunit",
                    steps=(Step(None, RED), Step(0.5, ORANGE), Step(1, GREEN)),
                ),
            ),
            sort=("Model", "Batch"),
            is_large=True,
        ),
        *WHERE,
    ),
)
