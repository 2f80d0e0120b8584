"""Writes docs/energy-truth.md from the stored answers."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from .files import LOG
from .meters import BY_NAME, METERS
from .readings import hidden
from .results import Results
from .scoring import Answer, is_wrong, score
from .worlds import Kind, World, make_world, specs

PAGE = Path(__file__).parents[2] / "docs/energy-truth.md"

_HEAD = """\
# A test for every energy meter

`python -m tools.energy_truth score` writes this page. It runs programs that publish joules on {worlds} worlds whose
energy is known exactly: {logs} recorded logs of tegrastats, {trees} boards with an INA3221 in sysfs and {gpus} GPUs behind NVML.
[The method](../tools/energy_truth/METHOD.md) says what a world is, what is counted, and what this test cannot show.
No world is a recording of a real board.

The worlds were frozen before the first score: their sums are in `tools/energy_truth/manifest.sha256`, and nothing is
scored if one differs. The programs of others are the published packages, unmodified. The first program of each table is
our own; [the worlds where it is wrong](#where-tegrascope-is-wrong) have a list. Live worlds run in real time, so their
figures differ a little from score to score, and more on a busy machine.

- **held**: of the figures with an interval, the share whose interval holds the truth. Only tegrascope states one.
- **within 1, 2, 5 %**: of all figures, the share that is so near the truth.
- **bias**: the median error. **worst**: the error that is furthest from 0.
- **withheld**: the share of worlds without a figure: withheld with a reason, not supported, or an error.

To score a program of your own on the logs: `python -m tools.energy_truth write` writes all files, and
`python -m tools.energy_truth answers mine.csv` reads `world,joules,low,high`, where both ends may be empty.

"""
_KINDS: tuple[tuple[Kind, str, str], ...] = (
    (
        "log",
        "Recorded logs",
        f"A program gets `{LOG}` and `runs.csv`. Nothing about the sensor can be known except from the lines.",
    ),
    (
        "sysfs",
        "Boards with an INA3221 in sysfs",
        "A process sees a `/sys` of its own, whose files change in real time; windows of 15 s. A stand-in prints them "
        "as tegrastats does.",
    ),
    (
        "nvml",
        "GPUs behind NVML",
        "A process loads a stand-in for `libnvidia-ml.so.1`, which plays the world in real time; windows of 15 s. "
        "Pascal and Thor have no energy counter. In three worlds the counter itself is wrong.",
    ),
)


def summary(results: Results) -> str:
    """Return the score of each tool on each kind of world, as a table."""
    return "\n".join(_scores(kind, results) for kind, _, _ in _KINDS if _tools(kind, results))


def render(results: Results) -> str:
    """Return the page."""
    worlds = {spec.name: make_world(spec) for spec in specs()}
    counts = [sum(world.spec.kind == kind for world in worlds.values()) for kind, _, _ in _KINDS]
    head = _HEAD.format(worlds=len(worlds), logs=counts[0], trees=counts[1], gpus=counts[2])
    parts = [head, "## Programs\n\n", _programs(results)]
    for kind, title, text in _KINDS:
        parts.append(f"\n## {title}\n\n{text}\n\n{_scores(kind, results)}")
    parts += [_NOTES, _wrong(results, worlds)]
    parts.append("\n## World by world\n\n" + _LEGEND)
    for kind, title, _ in _KINDS:
        parts.append(f"\n### {title}\n\n{_by_world(kind, results, worlds)}")
    return "".join(parts)


def write(results: Results) -> None:
    """Write the page."""
    PAGE.write_text(render(results), encoding="utf-8")


_NOTES = """
## Notes

Read in the sources of the programs, and seen in the scores.

- **jetsontools** knows rails by `VDD` and `VIN` in their names. Those of AGX Xavier have neither, so there is no figure. On
  AGX Orin its two totals contain `VDDQ_VDD2_1V8AO`, which is behind `VIN_SYS_5V0` and so counts twice: +5 to +9 %.
- **zeus, pyJoules** subtract two readings of the counter. If it starts again from 0 between them, the figure is negative;
  if it stands still or jumps, so does the figure. codecarbon notices that a counter ran back. Without a counter pyJoules
  raises an error, and so does zeus from Volta on.
- **zeus** reads power itself before Volta, without a pause. It takes the readings from a queue until that is empty for a
  moment, so the last part of a window may be missing: −50 to 0 % in repeated runs of one world.
- **codecarbon, carbontracker, aiperf** multiply a mean of a few readings by time where there is no counter
  (carbontracker always). Work in step with these readings, or a reading of the idle power before the work, is an error.
- **NVML's own power** is a mean of the last second on newer GPUs, so the trapezoid and ai-energymeter miss most of the
  first second of the work, and a window does not contain the second after it.
- **trtutils** computes energy from jetsontools, and needs TensorRT to be installed, so jetsontools is scored in its place.
  nvitop publishes no energy, and eco2ai none of the GPU alone.
"""
_LEGEND = """\
An error is that of the figure. `±` is half of a stated interval. **Bold** is wrong: the interval does not hold the
truth or, without an interval, the error is above 5 %. `–` is withheld or not supported. Worlds in *italics* are hidden:
no reader of their files can know the energy, for the reason given. That is decided from a world's parameters.
"""


def _table(rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * (lines[0].count("|") - 1))
    return "\n".join(lines) + "\n"


def _programs(results: Results) -> str:
    rows = [("program", "version", "what is run", "setting", "from")]
    for meter in METERS:
        if meter.name in results:
            version = meter.version if not meter.is_ours else "this checkout"
            if meter.name == "trapezoid":
                version = "–"
            rows.append((meter.name, version, meter.interface, meter.setting, meter.source))
    return _table(rows)


def _tools(kind: Kind, results: Results) -> list[str]:
    ours_first = [meter.name for meter in METERS] + [t for t in results if t not in BY_NAME]
    prefix = f"{kind}-"
    return [
        tool
        for tool in ours_first
        if any(world.startswith(prefix) for world in results.get(tool, {}))
    ]


def _scores(kind: Kind, results: Results) -> str:
    hidden_names = {spec.name for spec in specs() if spec.kind == kind and hidden(make_world(spec))}
    head = ["program", "worlds", "held", "within 1 %", "2 %", "5 %", "bias", "worst", "withheld"]
    if hidden_names:
        head.insert(3, f"held, without {len(hidden_names)} hidden worlds")
    rows = [tuple(head)]
    for tool in _tools(kind, results):
        own = {
            world: answer for world, answer in results[tool].items() if world.startswith(f"{kind}-")
        }
        found = score(own.values())
        row = [
            tool,
            str(found.worlds),
            _percent(found.coverage),
            *(_percent(share) for share in found.within),
            _signed(found.bias),
            _signed(found.worst),
            _percent(found.withheld),
        ]
        if hidden_names:
            known = score(answer for world, answer in own.items() if world not in hidden_names)
            row.insert(3, _percent(known.coverage))
        rows.append(tuple(row))
    return _table(rows)


def _wrong(results: Results, worlds: dict[str, World]) -> str:
    ours = results.get("tegrascope", {})
    rows: list[Sequence[str]] = [("world", "what it is", "error", "stated", "flags", "hidden")]
    for name, answer in ours.items():
        if is_wrong(answer):
            world = worlds[name]
            text = f"{world.work.note}; {world.sensor.text}"
            cells = (
                name,
                text,
                _signed(answer.error),
                _width(answer),
                answer.reason,
                hidden(world),
            )
            rows.append(tuple(cell or "–" for cell in cells))
    count = len(rows) - 1
    text = f"\n## Where tegrascope is wrong\n\nIts interval does not hold the truth in {count} of "
    text += f"{score(ours.values()).published} worlds with a figure.\n\n"
    return text + (_table(rows) if count else "")


def _by_world(kind: Kind, results: Results, worlds: dict[str, World]) -> str:
    tools = _tools(kind, results)
    rows = [("world", "what it is", "true joules", *tools)]
    for name, world in worlds.items():
        if world.spec.kind != kind:
            continue
        reason = hidden(world)
        text = f"{world.work.note}; {world.sensor.text}" if kind != "nvml" else world.work.note
        answers = [results[tool].get(name) for tool in tools]
        rows.append(
            (
                f"*{name}*" if reason else name,
                f"{text}. *{reason}*" if reason else text,
                f"{world.truth_joules:.1f}",
                *(_cell(answer) for answer in answers),
            )
        )
    return _table(rows)


def _cell(answer: Answer | None) -> str:
    if answer is None or answer.error is None:
        return "–"
    text = _signed(answer.error)
    if answer.has_interval:
        text += f" {_width(answer)}"
    return f"**{text}**" if is_wrong(answer) else text


def _width(answer: Answer) -> str:
    if not answer.joules or answer.low is None or answer.high is None:
        return "–"
    return f"± {(answer.high - answer.low) / 2 / answer.joules:.2%}".replace("%", " %")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}".replace("%", " %")


def _signed(error: float | None) -> str:
    return "–" if error is None else f"{error:+.2%}".replace("%", " %").replace("-", "−")
