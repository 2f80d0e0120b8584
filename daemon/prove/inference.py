"""What is believed about TensorRT, cuDLA and trtexec: engines, placement and figures."""

import re
from collections.abc import Iterator

from .belief import (
    DLA_REMEDY,
    Checks,
    Evidence,
    Verdict,
    decide,
    listed,
    not_here,
    proved,
    refuted,
    undecided,
)

CHECKS = Checks()

_VERDICTS = ("pure_dla", "dla_plus_reformat", "mixed", "gpu_only")
# Such an end is no evidence about the builder.
_NO_ROOM = re.compile(r"memory|timed? ?out|killed|space", re.IGNORECASE)
REFUSED = 3
_EQUAL = 0.02


def _words(build: Evidence) -> str:
    return next((line for line in reversed(build.lines) if line.strip()), "nothing")[:160]


def _built(build: Evidence) -> Verdict | None:
    """Return the verdict of a build that did not end well, else ``None``."""
    if build.status == 0:
        return None
    words = _words(build)
    if build.status is None or build.has(_NO_ROOM.pattern):
        return undecided(f"the build did not end: {words}")
    return refuted(f"the build ended with status {build.status}: {words}")


def _placed(build: Evidence) -> str | None:
    return next((word for word in _VERDICTS if build.has(rf"\b{word}\b")), None)


@CHECKS.needs("board", "build_dla")
def dla_refused(board: Evidence, build: Evidence) -> Verdict:
    """A board without DLA refuses one, with its own status."""
    if board.number("^dla_cores$") != 0:
        return not_here("this board has a DLA", "use an Orin Nano or a Thor")
    return decide(build.status == REFUSED, f"status {build.status}: {_words(build)}")


@CHECKS.needs("build_dla", "load")
def dla_engine_runs(build: Evidence, load: Evidence) -> Verdict:
    """The engine is placed on the DLA and runs there; the second core is not tried."""
    if (bad := _built(build)) is not None:
        return bad
    placed = _placed(build)
    if placed in (None, "gpu_only"):
        return refuted(f"the engine for dla0 is {placed}")
    return undecided(f"{placed}; a run on dla0 ended with {load.status}; try dla1 and builds once")


@CHECKS.needs("build_forbid")
def forbid_builds(build: Evidence) -> Verdict:
    """ResNet-50 fits, so the build succeeds."""
    return _built(build) or proved(f"built: {_placed(build)}")


@CHECKS.needs("board", "build_gpu")
def tensorrt_8_path(board: Evidence, build: Evidence) -> Verdict:
    """TensorRT 8 builds and runs the engine once."""
    version = board.value("^tensorrt$") or "none"
    if not version.startswith(("8.5", "8.6")):
        return not_here(f"TensorRT {version} is not 8.5 or 8.6", "use JetPack 5 or 6.0")
    return _built(build) or proved(f"TensorRT {version} built an engine and ran it")


@CHECKS.needs("wait")
def second_builder_waits(build: Evidence) -> Verdict:
    """The later of two builds prints that it waits."""
    if build.status is None:
        return undecided("the second build did not end in time")
    waited = build.has("waits for process|after waiting")
    return decide(waited, f"the later build ended with {build.status}; it waited: {waited}")


@CHECKS.needs("standalone")
def standalone_built(build: Evidence) -> Verdict:
    """A loadable of half precision is built."""
    return _built(build) or decide(_placed(build) == "pure_dla", f"built: {_placed(build)}")


def _without_dla(bench: Evidence) -> Verdict | None:
    """Return ``not here`` if the DLA was refused, else ``None``."""
    devices = [
        path.removesuffix("device") for path, text in bench.items(r"\.device$") if text == "dla0"
    ]
    if any(bench.value(f"^{re.escape(path)}status$") == "unavailable" for path in devices):
        return not_here("this board has no DLA", DLA_REMEDY)
    return None


def _rows(bench: Evidence) -> Iterator[tuple[str, str]]:
    """Yield device and path of each accelerator that ran to its end."""
    for path, device in bench.items(r"accelerators\.\d+\.device$"):
        prefix = path.removesuffix("device")
        if bench.value(rf"^{re.escape(prefix)}status$") == "ok":
            yield device, re.escape(prefix)


@CHECKS.needs("cudla")
def cudla_runs(bench: Evidence) -> Verdict:
    """It runs to its end, and its outputs are right."""
    rows = dict(_rows(bench))
    if "dla0" not in rows:
        reason = bench.value(r"\.reason$") or "no result"
        return undecided(f"cuDLA did not run: {reason[:120]}")
    outputs = bench.value(f"^{rows['dla0']}outputs.verdict$")
    if outputs not in ("good", "wrong"):
        return undecided(f"its outputs are {outputs}")
    return decide(outputs == "good", f"its outputs are {outputs}")


@CHECKS.needs("bench")
def resnet_on_dla(bench: Evidence) -> Verdict:
    """Slower, frees nearly all of the GPU, less energy: each by its interval."""
    if (without := _without_dla(bench)) is not None:
        return without
    rows = dict(_rows(bench))
    if not {"gpu", "dla0"} <= rows.keys():
        return undecided("GPU and DLA did not both run to their end")

    def figure(device: str, name: str) -> float | None:
        return bench.number(f"^{rows[device]}{name}$")

    slow = figure("dla0", "latency_seconds.low"), figure("gpu", "latency_seconds.high")
    freed, load = figure("dla0", "gpu_freed.value"), figure("gpu", "utilization.gpu.value")
    costs = figure("dla0", "net_joules_per_inference.high")
    saves = figure("gpu", "net_joules_per_inference.low")
    if None in (*slow, freed, load):
        return undecided("latency or the load of the GPU is not known")
    parts = {"slower": slow[0] > slow[1], "frees the GPU": freed >= 0.9 * load}  # type: ignore[operator]
    if costs is not None and saves is not None:
        parts["less energy"] = costs < saves
    seen = ", ".join(f"{name}: {holds}" for name, holds in parts.items())
    if not all(parts.values()):
        return refuted(seen)
    return proved(seen) if len(parts) > 2 else undecided(f"{seen}; energy is not known")


@CHECKS.needs("bench")
def profiler_rows_add_up(bench: Evidence) -> Verdict:
    """Each row has a kind, and the rows add up to all time."""
    wrong, rows = [], dict(_rows(bench))
    if not rows:
        return undecided("nothing ran to its end")
    for device, row in rows.items():
        seconds = [float(text) for _, text in bench.items(rf"^{row}layers\.\d+\.seconds$")]
        kinds = len(list(bench.items(rf"^{row}layers\.\d+\.kind$")))
        total = bench.number(f"^{row}profiled_seconds$")
        if not seconds or not total:
            return undecided(f"no layer of {device} was timed")
        if kinds < len(seconds):
            wrong.append(f"{device}: {len(seconds) - kinds} rows have no kind")
        if abs(sum(seconds) - total) > _EQUAL * total:
            wrong.append(f"{device}: rows have {sum(seconds):.6f} s of {total:.6f} s")
    return decide(not wrong, f"wrong: {listed(wrong)}")


@CHECKS.needs("board", "bench")
def rounds_agree(board: Evidence, bench: Evidence) -> Verdict:
    """With locked clocks no accelerator has ``not_steady``."""
    if board.value("^clocks held$") != "True":
        return not_here("the clocks are not locked", "sudo jetson_clocks, then prove again")
    rows = dict(_rows(bench))
    if not rows:
        return undecided("nothing ran to its end")
    moved = [name for name, row in rows.items() if list(bench.items(f"^{row}flags.not_steady$"))]
    return decide(not moved, f"of {listed(list(rows))}, not steady: {listed(moved)}")


@CHECKS.needs("bench")
def inspector_layer_types(bench: Evidence) -> Verdict:
    """The engine for the DLA has layers of known types."""
    if (without := _without_dla(bench)) is not None:
        return without
    row = dict(_rows(bench)).get("dla0")
    if row is None:
        return undecided("the engine for dla0 did not run to its end")
    types = [path.rpartition(".")[2] for path, _ in bench.items(rf"^{row}built\.layer_types\.")]
    return decide(bool(types), f"types: {listed(types)}")


@CHECKS.needs("inspect")
def inspect_predicts(verified: Evidence) -> Verdict:
    """The builder agrees on each node of ResNet-50; one model without difference proves little."""
    agreed, compared = (verified.number(rf"\.{name}$") for name in ("agreed", "compared"))
    if not compared or agreed is None:
        return undecided("the builder was not asked")
    because = f"{agreed:.0f} of {compared:.0f} nodes of ResNet-50 are as predicted"
    if agreed < compared:
        return refuted(because)
    return undecided(f"{because}; three more models are to be tried")


@CHECKS.needs("trtexec")
def log_lists_layers(log: Evidence) -> Verdict:
    """The log has both words, or the one of the DLA alone."""
    count = log.number("^DlaLayer$")
    if log.status != 0 or count is None:
        return undecided(f"trtexec ended with {log.status}")
    return decide(count > 0, f"{count:.0f} lines with DlaLayer")


@CHECKS.needs("trtexec")
def inspector_says_dla(log: Evidence) -> Verdict:
    """A layer has the type ``DLA``."""
    types = [path.partition(" ")[2] for path, _ in log.items("^LayerType ")]
    if not types:
        return undecided("the inspector wrote no type")
    return decide("DLA" in types, f"types: {listed(types)}")


@CHECKS.needs("together")
def workers_together(bench: Evidence) -> Verdict:
    """Each placement of two models ran to its end."""
    states = [text for _, text in bench.items(r"together\.\d+\.status$")]
    if not states:
        return undecided("no placement was measured")
    bad = [state for state in states if state != "ok"]
    return decide(not bad and bench.status == 0, f"{len(states)} placements, failed: {len(bad)}")
