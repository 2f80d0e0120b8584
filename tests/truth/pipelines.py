"""Pipelines that keep what ``advise`` promised, or not: ``python -m tests.truth.pipelines``.

A simulated AGX Orin is benched, ``advise`` writes a promise, and real GStreamer runs a pipeline at
the promised rate. The board plays the load of its frames, in half of the pipelines with one planted
departure. ``verify`` is told neither. Printed is what it says of each, and whether that is right.
"""

import argparse
import contextlib
import io
import os
import random
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tegrascope.collectors.base import SYSTEM_CLOCK, Clock
from tegrascope.collectors.children.program import ProgramEnd, SignalRelay
from tegrascope.collectors.simulator.physics import LoadBoard
from tegrascope.workbench.cli import main as run_command
from tegrascope.workbench.cli import make_parser
from tegrascope.workbench.commands.execute import open_session, telemetry_config
from tegrascope.workbench.commands.verify import Verification, promised_side, verify
from tegrascope.workbench.results.reading import read_promise, read_result
from tegrascope.workbench.results.records import AcceleratorResult

SECONDS = 30.0
BENCHED = (
    ("resnet50", "gpu"),
    ("resnet50", "dla0"),
    ("retinanet-resnext50", "gpu"),
    ("retinanet-resnext50", "dla0"),
)
_HOT_CELSIUS, _USUAL_CELSIUS = 95.0, 31.7
# Of the usual clocks on a hot board: docs/simulator.md.
_HELD_SPEED = 0.7
# A departure that a test may ask for: limits are 5 % and 5 points.
_CLEARLY = 0.085
DEPARTURES = {
    "wrong core": "accelerator",
    "GPU fallback": "fallback",
    "throttled": "throttling",
    "contention": "contention",
    "other precision": "precision",
}
_OF_A_DLA = ("wrong core", "GPU fallback")


@dataclass(frozen=True)
class Pipeline:
    """What a pipeline really does, and what is planted.

    Attributes:
        seconds: By lane, how long it is at work on a frame.
        others: Loads of other programs, all the time.
    """

    number: int
    model: str
    device: str
    asked_rate: float
    rate: float
    seconds: dict[str, float]
    others: dict[str, float]
    celsius: float = _USUAL_CELSIUS
    planted: str | None = None
    length_seconds: float = SECONDS

    @property
    def name(self) -> str:
        """Model, accelerator, rate and departure."""
        about = f"{self.model} on {self.device} at {self.asked_rate:.0f}/s"
        return f"{about}, {self.planted or 'as promised'}"

    def argv(self) -> list[str]:
        """Return the command of the pipeline: its board works in parallel, so it takes no time."""
        count, milli = round(self.rate * self.length_seconds), round(1000 * self.rate)
        words = f"gst-launch-1.0 -q videotestsrc num-buffers={count} is-live=true pattern=black !"
        words += f" video/x-raw,width=32,height=32,framerate={milli}/1000 !"
        return shlex.split(f"{words} identity name=infer sleep-time=1000 ! fakesink")


def plan(
    number: int,
    seed: int,
    planted: str | None,
    benches: Path,
    places: "Sequence[tuple[str, str]]" = BENCHED,
) -> Pipeline:
    """Return a pipeline of a benched model, drawn at random, that departs clearly or not at all."""
    chance = random.Random(f"{seed} {number}")
    while True:
        pipeline = _draw(number, chance, planted, benches, places)
        if planted is None or pipeline.planted in _OF_A_DLA or pipeline.others:
            return pipeline
        if _departs(pipeline, benches):
            return pipeline


def _of(model: str, device: str, benches: Path) -> AcceleratorResult:
    return read_result(benches / f"{model}-{device}").models[0].accelerators[0]


def _draw(
    number: int,
    chance: random.Random,
    planted: str | None,
    benches: Path,
    places: "Sequence[tuple[str, str]]",
) -> Pipeline:
    wanted = [place for place in places if place[1] != "gpu" or planted not in _OF_A_DLA]
    model, device = chance.choice(wanted)
    result = _of(model, device, benches)
    assert result.throughput_per_second is not None
    alone = 1 / result.throughput_per_second.value
    # A DLA with pauses draws power in them, of which no bench knows: docs/advise.md.
    highest = min(50.0, 0.9 / alone)
    rate = chance.uniform(0.7 * highest, highest)
    seconds = {device: alone, "gpu": alone * result.utilization["gpu"].value}
    others: dict[str, float] = {}
    celsius, slower = _USUAL_CELSIUS, 1.0
    if planted == "wrong core":
        seconds["dla1"] = seconds.pop("dla0")
    elif planted == "GPU fallback":
        # Half of the network up to all of it; the GPU is two to five times as fast.
        share = chance.choice((chance.uniform(0.5, 0.8), 1.0))
        seconds["gpu"] = max(share * alone / chance.uniform(2, 5), 0.12 / rate)
        seconds[device] = (1 - share) * alone
    elif planted == "throttled":
        celsius, slower = _HOT_CELSIUS, 1 / _HELD_SPEED
    elif planted == "contention":
        other = chance.choice(("gpu", device))
        others[other] = chance.uniform(0.3, 0.6)
        if other == device:
            slower = 1 + others[other]
    elif planted == "other precision":
        slower = chance.uniform(1.7, 2.5)
    seconds = {lane: slower * took for lane, took in seconds.items()}
    return Pipeline(
        number=number,
        model=model,
        device=device,
        asked_rate=rate,
        rate=min(rate, 0.98 / max(seconds.values())),
        seconds=seconds,
        others=others,
        celsius=celsius,
        planted=planted,
    )


def _departs(pipeline: Pipeline, benches: Path) -> bool:
    """Return whether a slower pipeline is far beyond a limit, by what its bench drew."""
    result = _of(pipeline.model, pipeline.device, benches)
    net, gross = result.net_joules_per_inference, result.gross_joules_per_inference
    throughput = result.throughput_per_second
    assert net is not None and gross is not None and throughput is not None
    alone = 1 / throughput.value
    duty = pipeline.asked_rate * alone
    longer = pipeline.rate * pipeline.seconds[pipeline.device]
    idle, work = (gross.value - net.value) / alone, net.value / alone
    if pipeline.planted == "throttled":
        power = idle + work * longer * _HELD_SPEED**2
    else:
        power = idle + work * longer
    joules = power / pipeline.rate / ((idle + work * duty) / pipeline.asked_rate) - 1
    more_gpu = result.utilization["gpu"].value * (longer - duty)
    slower = pipeline.rate / pipeline.asked_rate - 1
    return max(abs(joules), abs(more_gpu), abs(slower)) > _CLEARLY


class Player(SignalRelay):
    """Runs the program, and lets the simulated board play the mean load of its frames meanwhile.

    Frame by frame, the readings would scatter by the whole power of the accelerator, and the energy
    of each pipeline would need minutes.
    """

    def __init__(self, load: LoadBoard, pipeline: Pipeline) -> None:
        super().__init__()
        self._load, self._pipeline = load, pipeline

    def run(
        self,
        argv: Sequence[str],
        clock: Clock = SYSTEM_CLOCK,
        read_line: Callable[[str], None] | None = None,
        env: Mapping[str, str] = {},
    ) -> ProgramEnd:
        for lane, seconds in self._pipeline.seconds.items():
            ratio = min(1.0, seconds * self._pipeline.rate)
            self._load.set(lane, ratio, clock.monotonic_ns(), "pipeline")
        try:
            return super().run(argv, clock, read_line, env)
        finally:
            self._load.end("pipeline", clock.monotonic_ns())


def check(pipeline: Pipeline, benches: Path) -> "tuple[Pipeline, Verification, str]":
    """Return what ``verify`` says of a pipeline, and its words."""
    words = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(words):
        config = Path(folder, "board.yaml")
        config.write_text(
            f"telemetry:\n  source: simulator\n  interval: 0.103\n"
            f"  simulator: {{ambient_celsius: {pipeline.celsius}, seed: {pipeline.number}}}\n"
        )
        source = str(benches / f"{pipeline.model}-{pipeline.device}")
        with contextlib.redirect_stdout(io.StringIO()):
            rates = f"{pipeline.model}={pipeline.asked_rate}"
            limits = ("--deadlines", f"{pipeline.model}=1s", "--margin", "0")
            assert run_command(["advise", source, "--rates", rates, *limits, "-o", folder]) == 0
        asked = ["verify", "-c", str(config), "--gst", "infer", folder, "--", *pipeline.argv()]
        arguments = make_parser(asked).parse_args(asked)
        promise = read_promise(Path(folder))
        session = open_session(telemetry_config(arguments), SYSTEM_CLOCK)
        try:
            for lane, ratio in pipeline.others.items():
                session.load.set(lane, ratio, holder="others")
            time.sleep(0.5)
            with Player(session.load, pipeline) as relay:
                found = verify(
                    arguments, pipeline.argv(), relay, session, promise, promised_side(promise)
                )
        finally:
            session.stop()
    assert found is not None
    return pipeline, found, words.getvalue()


def bench(place: "tuple[str, str]", benches: Path) -> None:
    """Bench a model on the simulated board."""
    model, device = place
    asked = [model, "--simulate", "--on", device, "--rounds", "4", "--baseline", "4"]
    directory = benches / f"{model}-{device}"
    subprocess.run(
        [sys.executable, "-m", "tegrascope", "bench", *asked, "-o", str(directory)],
        check=True,
        capture_output=True,
    )


def verdicts(
    seed: int, pipelines: int, benches: Path, jobs: int
) -> "Iterator[tuple[Pipeline, Verification, str]]":
    """Yield the verdicts on so many pipelines as promised, and as many with a departure."""
    with ProcessPoolExecutor(jobs) as pool:
        missing = [place for place in BENCHED if not (benches / "-".join(place)).exists()]
        list(pool.map(partial(bench, benches=benches), missing))
        kinds = list(DEPARTURES)
        planned = []
        for number in range(pipelines):
            planned.append(plan(2 * number, seed, None, benches))
            planned.append(plan(2 * number + 1, seed, kinds[number % len(kinds)], benches))
        yield from pool.map(partial(check, benches=benches), planned)


def main(given: Sequence[str] | None = None) -> int:
    """Print the verdict on each pipeline, and return 1 if too many are wrong."""
    parser = argparse.ArgumentParser(prog="tests.truth.pipelines", description=__doc__)
    parser.add_argument("--pipelines", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, help="default: drawn now")
    parser.add_argument("--benches", type=Path, help="keep the results of bench there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args(given)
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    accused = undecided = right = 0
    with tempfile.TemporaryDirectory() as folder:
        benches = arguments.benches or Path(folder)
        for pipeline, found, words in verdicts(seed, arguments.pipelines, benches, arguments.jobs):
            reason = found.reason and found.reason.name
            is_right = found.verdict == "holds"
            if pipeline.planted is None:
                accused += found.verdict == "does_not_hold"
                undecided += found.verdict == "undecided"
            else:
                is_right = (found.verdict, reason) == (
                    "does_not_hold",
                    DEPARTURES[pipeline.planted],
                )
                right += is_right
            print(f"{pipeline.name}: {found.verdict} {reason or ''}", flush=True)
            if not is_right:
                print(words, flush=True)
    count = arguments.pipelines
    print(
        f"as promised: {accused} of {count} falsely accused, {undecided} undecided; with a"
        f" departure: {right} of {count} named rightly"
    )
    return int(accused > 0 or undecided > 0.15 * count or right < 0.95 * count)


if __name__ == "__main__":
    sys.exit(main())
