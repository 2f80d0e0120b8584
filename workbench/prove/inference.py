"""Checks of beliefs about TensorRT, cuDLA and trtexec: engines, placement and figures."""

import re
from collections.abc import Iterator

from ...parsers.errors import PIP_INSTALL
from ...parsers.values import DLAS
from .belief import (
    DLA_REMEDY,
    BeliefCheck,
    Checks,
    Decision,
    Evidence,
    Unseen,
    decide,
    lacking,
    listed,
    not_here,
    proved,
    refuted,
    undecided,
)

CHECKS = Checks()

_VERDICTS = ("pure_dla", "dla_plus_reformat", "mixed", "gpu_only")
# Such an end is no evidence about the builder.
_NO_ROOM = r"(?i)^stderr: .*(memory|timed? ?out|killed|space)"
REFUSED = 3
_EQUAL, _IDLE, _CHEAP, _CHEAP_SHARE = 0.02, 0.01, 50e-6, 0.01
# Errors of equal scales: builds choose kernels anew, which moves the error by a tenth.
_ONE_SIZE = 2.0
_GIB = 1 << 30


def _words(build: Evidence) -> str:
    return build.last_words[:160]


def _built(build: Evidence) -> Decision | None:
    """Return the verdict of a build that did not end well, else ``None``."""
    if build.status == 0:
        return None
    words = _words(build)
    if build.status is None or build.has(_NO_ROOM):
        return undecided(f"the build did not end: {words}")
    return refuted(f"the build ended with status {build.status}: {words}")


def _pure(build: Evidence) -> Decision:
    """Return whether a build ended well with all layers on the DLA."""
    failure = _built(build)
    if failure is not None:
        return failure
    placed = _placed(build)
    if placed is None:
        return undecided("the placement is not known")
    return decide(placed == "pure_dla", f"built: {placed}")


CHECKS["standalone_built"] = BeliefCheck(("standalone",), _pure)
CHECKS["standalone_int8"] = BeliefCheck(("standalone_int8",), _pure)


def _placed(build: Evidence) -> str | None:
    for verdict in _VERDICTS:
        if build.has(rf"\b{verdict}\b"):
            return verdict
    return None


@CHECKS.needs("board", "build_dla")
def dla_refused(board: Evidence, build: Evidence) -> Decision:
    """A board without DLA refuses one, with its own status."""
    if board.number("^dla_cores$") != 0:
        return not_here("this board has a DLA", "use an Orin Nano or a Thor")
    return decide(build.status == REFUSED, f"status {build.status}: {_words(build)}")


@CHECKS.needs("build_dla", "bench")
def dla_engine_runs(build: Evidence, bench: Evidence) -> Decision:
    """The engine is placed on the DLA, is built once for both cores, and powers the second one."""
    row = _row(bench, "dla1")
    failure = _built(build)
    if failure is not None:
        return failure
    placed, cached = _placed(build), build.value(r"\.dla1\.is_cached$")
    powered = bench.need(f"^{row}utilization.dla1:powered.value$", "powered time is not known")
    because = f"{placed}; cached for dla1: {cached}; dla1 is powered for {100 * powered:.0f} %"
    on_dla = placed in ("pure_dla", "dla_plus_reformat", "mixed")
    return decide(on_dla and cached == "True" and powered > 0.5, because)


@CHECKS.needs("build_forbid")
def forbid_builds(build: Evidence) -> Decision:
    """ResNet-50 fits, so the build succeeds."""
    return _built(build) or proved(f"built: {_placed(build)}")


@CHECKS.needs("board", "build_gpu")
def tensorrt_8_path(board: Evidence, build: Evidence) -> Decision:
    """TensorRT 8 builds and runs the engine once."""
    version = board.value("^tensorrt$") or "none"
    if not version.startswith(("8.5", "8.6")):
        return not_here(f"TensorRT {version} is not 8.5 or 8.6", "use JetPack 5 or 6.0")
    return _built(build) or proved(f"TensorRT {version} built an engine and ran it")


@CHECKS.needs("build_gpu")
def build_memory(build: Evidence) -> Decision:
    """The memory that a build took was less than the estimate before it."""
    if build.value(r"\.gpu\.is_cached$") != "False":
        return undecided("nothing was built")
    wanted = build.need(r"wanted_memory_bytes$", "there was no estimate")
    taken = build.need("^taken MiB$", "the memory was not read") / 1024
    because = f"it took {taken:.2f} GiB, of an estimate of {wanted / _GIB:.2f} GiB"
    return decide(taken <= wanted / _GIB, because)


@CHECKS.needs("wait")
def second_builder_waits(build: Evidence) -> Decision:
    """The later of two builds prints that it waits, and not that it builds."""
    if build.has("waits for "):
        return proved("the later build waited")
    if build.has("builds the engine") and build.value("^first ended$") == "False":
        return refuted("the later build began while the first one went on")
    return undecided("the first build may have ended before")


@CHECKS.needs("board", "build_gpu")
def old_cuda_python(board: Evidence, build: Evidence) -> Decision:
    """An engine is built and runs with a binding from before ``cuda.bindings``."""
    version = board.value("^cuda_python$") or "None"
    if not re.match(r"11\.|12\.[012]\.", version):
        return not_here(f"cuda-python is {version}", f"{PIP_INSTALL} 'cuda-python<12.3'")
    return _built(build) or proved(f"cuda-python {version} ran an engine")


@CHECKS.needs("shape", "other_shape")
def range_of_shapes(first: Evidence, other: Evidence) -> Decision:
    """Both shapes have right outputs by one engine, whose build took one time."""
    built, outputs = [], []
    for bench in (first, other):
        row = _row(bench, "gpu")
        built.append(bench.value(f"^{row}built.build_seconds$"))
        outputs.append(bench.value(f"^{row}outputs.verdict$"))
    if not set(outputs) <= {"good", "wrong"}:
        return undecided(f"outputs are {listed(outputs)}")
    holds = built[0] is not None and built[0] == built[1] and set(outputs) == {"good"}
    return decide(holds, f"outputs are {listed(outputs)}; seconds of the build: {listed(built)}")


@CHECKS.needs("inputs", "plugin", "unknown_operator")
def plugins_loaded(inputs: Evidence, plugin: Evidence, unknown: Evidence) -> Decision:
    """A model with an operator of NVIDIA's plug-ins can be read; an unknown one is named."""
    if inputs.value("^plugin library$") != "True":
        return not_here("libnvinfer_plugin.so was not found", "install TensorRT's plug-ins")
    named = unknown.status != 0 and unknown.has("UnknownOperator")
    because = f"with the library: {_words(plugin)}; the unknown operator is named: {named}"
    # The model was read, so its operator was found; a build may fail for want of cuBLAS.
    was_read = plugin.status == 0 or plugin.has("could not build plugin")
    if not was_read and not plugin.has("cannot be loaded|needs the operator"):
        return undecided(because)
    return decide(was_read and named, because)


@CHECKS.needs("bench")
def outputs_bit_equal(bench: Evidence) -> Decision:
    """The last outputs of each later run differ in no bit from those of the first one."""
    differences = bench.texts(r"rounds\.\d+\.outputs\.difference$")
    if not differences:
        return undecided("no outputs were compared")
    return decide(
        set(map(float, differences)) == {0.0},
        f"{len(differences)} runs, differ by {listed(differences)}",
    )


@CHECKS.needs("calibration")
def calibrates(bench: Evidence) -> Decision:
    """The engines of int8 have the scales of our calibrator."""
    rows = {"gpu": _row(bench, "gpu"), **dict(_rows(bench))}
    scales = [bench.value(f"^{row}built.int8_scales$") for row in rows.values()]
    return decide(set(scales) == {"calibrated"}, f"scales: {listed(scales)}")


def _equal_scales(bench: Evidence, other: Evidence) -> Decision:
    """Return whether outputs of two int8 benchmarks are right, with errors of one size.

    Which layers are int8 is not compared: each build of TensorRT measures that anew.
    """
    _row(bench, "gpu"), _row(other, "gpu")
    others = dict(_rows(other))
    compared, holds = [], True
    for device, row in _rows(bench):
        if device not in others:
            return undecided(f"{device} did not run")
        verdict, error = _outputs(bench, row)
        other_verdict, other_error = _outputs(other, others[device])
        is_right = verdict == other_verdict == "good"
        smaller, larger = sorted((error, other_error))
        holds = holds and is_right and larger <= _ONE_SIZE * smaller
        compared.append(f"{device} {verdict} {error:.3g} and {other_verdict} {other_error:.3g}")
    return decide(holds, f"outputs and their errors: {listed(compared)}")


def _outputs(bench: Evidence, row: str) -> tuple[str | None, float]:
    """Return the verdict on the outputs of an accelerator, and their error."""
    error = bench.need(f"^{row}outputs.relative_error$", "no outputs were compared")
    return bench.value(f"^{row}outputs.verdict$"), error


CHECKS["cache_same_engine"] = BeliefCheck(("calibration", "from_cache"), _equal_scales)
CHECKS["cache_other_release"] = BeliefCheck(("calibration", "other_cache"), _equal_scales)


def _rows(bench: Evidence) -> Iterator[tuple[str, str]]:
    """Yield device and path of each accelerator that ran to its end."""
    for path, device in bench.items(r"accelerators\.\d+\.device$"):
        prefix = re.escape(path.removesuffix("device"))
        if bench.value(f"^{prefix}status$") == "ok":
            yield device, prefix


def _row(bench: Evidence, device: str) -> str:
    """Return the path of an accelerator that ran to its end, or raise ``Unseen``."""
    for path, name in bench.items(r"accelerators\.\d+\.device$"):
        prefix = re.escape(path.removesuffix("device"))
        if name == device:
            state = bench.value(f"^{prefix}status$")
            if state == "ok":
                return prefix
            if state == "unavailable":
                raise Unseen(not_here(f"this board has no {device}", DLA_REMEDY))
            raise Unseen(undecided(f"{device}: {bench.value(f'^{prefix}reason$') or state}"))
    reason = f"{device} did not run"
    if bench.status is None:
        reason += f": stopped after {bench.seconds:.0f} s"
    raise Unseen(undecided(reason))


@CHECKS.needs("cudla")
def last_error_cheap(bench: Evidence) -> Decision:
    """Host and device agree on the time of an inference within 50 µs."""
    row = _row(bench, "dla0")
    why = "the time on the device is not known"
    host = bench.need(f"^{row}latency.p50_seconds$", why)
    device = bench.need(f"^{row}device_latency.p50_seconds$", why)
    return decide(host - device < _CHEAP, f"{1e6 * (host - device):.0f} µs more than the device")


@CHECKS.needs("bench")
def measuring_cheap(bench: Evidence) -> Decision:
    """The worker spends less than 1 % of each round between inferences."""
    shares = bench.texts(r"rounds\.\d+\.measuring_share$")
    if not shares:
        return undecided("no round has a share for measuring")
    largest = max(map(float, shares))
    return decide(largest < _CHEAP_SHARE, f"at most {100 * largest:.2f} % of the time")


@CHECKS.needs("streams")
def two_streams_fit(bench: Evidence) -> Decision:
    """Two inferences at once run to their end."""
    row = _row(bench, "dla0")
    return proved(f"outputs are {bench.value(f'^{row}outputs.verdict$')}")


def _memory_taken(bench: Evidence, device: str) -> Decision:
    """Return whether outputs are right with mapped and managed memory, as they are with copies."""
    outcomes: dict[str, str] = {}
    for path, name in bench.items(r"points\.\d+\.result\.device$"):
        point = re.escape(path.removesuffix("result.device"))
        if name != device:
            continue
        if bench.value(f"^{point}result.status$") == "unavailable":
            return not_here(f"this board has no {device}", DLA_REMEDY)
        reason = bench.value(f"^{point}result.reason$") or "no outputs were compared"
        if "memory of its own" in reason:
            return not_here("the GPU has memory of its own", "use a Jetson")
        memory = bench.value(f"^{point}variant.memory$") or "copy"
        outcomes[memory] = bench.value(f"^{point}result.outputs.verdict$") or reason
    because = listed([f"{memory}: {outcome}" for memory, outcome in outcomes.items()])
    if len(outcomes) < 3 or outcomes.get("copy") != "good":
        return undecided(because or "nothing was measured")
    return decide(set(outcomes.values()) == {"good"}, because)


@CHECKS.needs("memory")
def memory_on_gpu(bench: Evidence) -> Decision:
    """The GPU has right outputs with each memory."""
    return _memory_taken(bench, "gpu")


@CHECKS.needs("memory")
def memory_on_dla(bench: Evidence) -> Decision:
    """A DLA has right outputs with each memory."""
    return _memory_taken(bench, "dla0")


@CHECKS.needs("trtexec_run")
def trtexec_options(bench: Evidence) -> Decision:
    """A run by trtexec ends well; another release may still differ."""
    _row(bench, "gpu")
    return proved("the run ended well with this release")


@CHECKS.needs("forbid")
def no_gpu_work(bench: Evidence) -> Decision:
    """The load of the GPU is zero while the DLA works without fallback."""
    path = f"^{_row(bench, 'dla0')}utilization.gpu.value$"
    load = bench.need(path, "the load of the GPU is not known")
    return decide(load < _IDLE, f"the GPU is busy for {100 * load:.1f} %")


@CHECKS.needs("bench")
def plan_on_both_cores(bench: Evidence) -> Decision:
    """Both cores have one engine, whose build took one time, and equal outputs."""
    built, errors = [], []
    for row in [_row(bench, device) for device in DLAS]:
        built.append(bench.value(f"^{row}built.build_seconds$"))
        errors.append(bench.value(f"^{row}outputs.relative_error$"))
    if None in errors:
        return undecided("the outputs were not compared")
    holds = None not in built and built[0] == built[1] and errors[0] == errors[1]
    return decide(holds, f"seconds of the build: {listed(built)}; errors: {listed(errors)}")


@CHECKS.needs("bench")
def resnet_on_dla(bench: Evidence) -> Decision:
    """Slower, frees nearly all of the GPU, less energy: each by its interval."""
    dla, gpu = _row(bench, "dla0"), _row(bench, "gpu")
    why = "latency or the load of the GPU is not known"
    slow = bench.need(f"^{dla}latency_seconds.low$", why)
    fast = bench.need(f"^{gpu}latency_seconds.high$", why)
    freed = bench.need(f"^{dla}gpu_freed.value$", why)
    load = bench.need(f"^{gpu}utilization.gpu.value$", why)
    costs = bench.number(f"^{dla}net_joules_per_inference.high$")
    saved = bench.number(f"^{gpu}net_joules_per_inference.low$")
    parts = {"slower": slow > fast, "frees the GPU": freed >= 0.9 * load}
    if costs is not None and saved is not None:
        parts["less energy"] = costs < saved
    because = ", ".join(f"{name}: {holds}" for name, holds in parts.items())
    if not all(parts.values()):
        return refuted(because)
    return proved(because) if len(parts) > 2 else undecided(f"{because}; energy is not known")


@CHECKS.needs("bench")
def profiler_rows_grouped(bench: Evidence) -> Decision:
    """No row is one of the driver's own, and those on the DLA take about the stage ``compute``."""
    row = _row(bench, "dla0")
    names = bench.texts(rf"^{row}layers\.\d+\.name$")
    copies = [name for name in names if name.endswith(("from nvm", "copy finish"))]
    if not names:
        return undecided("no layer was timed")
    if copies:
        return refuted(f"{len(copies)} rows are copies")
    times = [bench.number(f"^{path}seconds$") or 0.0 for path in _layers_on_dla(bench, row)]
    compute = bench.number(f"^{row}stages.compute.p50_seconds$")
    if not compute or not times:
        return undecided("the time of the DLA or of its stage is not known")
    ratio = sum(times) / compute
    because = f"rows of the DLA take {ratio:.2f} of the stage compute"
    return proved(because) if 0.5 <= ratio <= 2 else undecided(because)


@CHECKS.needs("bench")
def profiler_rows_add_up(bench: Evidence) -> Decision:
    """Each row has a kind, and the rows add up to all time."""
    wrong, rows = [], dict(_rows(bench))
    if not rows:
        return undecided("nothing ran to its end")
    for device, row in rows.items():
        seconds = list(map(float, bench.texts(rf"^{row}layers\.\d+\.seconds$")))
        kinds = len(bench.paths(rf"^{row}layers\.\d+\.kind$"))
        total = bench.number(f"^{row}profiled_seconds$")
        if not seconds or not total:
            return undecided(f"no layer of {device} was timed")
        if kinds < len(seconds):
            wrong.append(f"{device}: {len(seconds) - kinds} rows have no kind")
        if abs(sum(seconds) - total) > _EQUAL * total:
            wrong.append(f"{device}: rows have {sum(seconds):.6f} s of {total:.6f} s")
    return decide(not wrong, f"wrong: {listed(wrong)}")


@CHECKS.needs("board", "bench")
def rounds_agree(board: Evidence, bench: Evidence) -> Decision:
    """With locked clocks no accelerator has ``not_steady``."""
    if board.value("^clocks held$") != "True":
        return not_here("the clocks are not locked", "sudo jetson_clocks, then prove again")
    rows = dict(_rows(bench))
    if not rows:
        return undecided("nothing ran to its end")
    moved = [name for name, row in rows.items() if bench.paths(f"^{row}flags.not_steady$")]
    return decide(not moved, f"of {listed(list(rows))}, not steady: {listed(moved)}")


@CHECKS.needs("bench")
def inspector_layer_types(bench: Evidence) -> Decision:
    """The engine for the DLA has layers of known types."""
    row = _row(bench, "dla0")
    types = [path.rpartition(".")[2] for path in bench.paths(rf"^{row}built\.layer_types\.")]
    return decide(bool(types), f"types: {listed(types)}")


@CHECKS.needs("inspect_parts")
def inspect_parts(verified: Evidence) -> Decision:
    """Each node of ResNet-50 is where it was predicted."""
    agreed, compared = verified.number(r"\.agreed$"), verified.number(r"\.compared$")
    if not compared or agreed is None:
        return undecided("nothing was compared")
    return decide(agreed == compared, f"{agreed:.0f} of {compared:.0f} nodes are as predicted")


@CHECKS.needs("inspect")
def inspect_predicts(verified: Evidence) -> Decision:
    """The builder agrees on each node of ResNet-50; one model without difference proves little."""
    verdict = inspect_parts(verified)
    if verdict.state == "proved":
        return undecided(f"{verdict.because}; try two more models")
    return verdict


@CHECKS.needs("trtexec")
def log_lists_layers(log: Evidence) -> Decision:
    """The log has both words, or the one of the DLA alone."""
    count = log.number("^DlaLayer$")
    if log.status != 0 or count is None:
        return undecided(f"trtexec ended with {log.status}")
    return decide(count > 0, f"{count:.0f} lines with DlaLayer")


@CHECKS.needs("trtexec")
def inspector_says_dla(log: Evidence) -> Decision:
    """A layer has the type ``DLA``."""
    types = list(log.numbers_after("LayerType "))
    if not types:
        return undecided("the inspector wrote no type")
    return decide("DLA" in types, f"types: {listed(types)}")


@CHECKS.needs("together")
def workers_together(bench: Evidence) -> Decision:
    """Each placement of two models ran to its end."""
    states = bench.texts(r"together\.\d+\.status$")
    if not states:
        return undecided("no placement was measured")
    bad = lacking(states, ("ok",))
    return decide(not bad and bench.status == 0, f"{len(states)} placements, failed: {len(bad)}")


@CHECKS.needs("pure", "fell_back")
def fallback_distinguished(pure: Evidence, fell_back: Evidence) -> Decision:
    """ResNet-50 is pure; a model with a softmax in the middle is refused by name of the layer."""
    without_softmax = _pure(pure)
    if without_softmax.state != "proved":
        return without_softmax
    if fell_back.status == 0:
        return refuted(f"a model with a softmax is called {_placed(fell_back)}")
    return decide(fell_back.has("soft"), f"status {fell_back.status}: {_words(fell_back)}")


def _right(bench: Evidence) -> Decision:
    """Return whether a model ran on the DLA to its end, with right outputs."""
    outputs = bench.value(f"^{_row(bench, 'dla0')}outputs.verdict$")
    if outputs not in ("good", "wrong"):
        return undecided(f"its outputs are {outputs}")
    return decide(outputs == "good", f"its outputs are {outputs}")


CHECKS["cudla_runs"] = BeliefCheck(("cudla",), _right)
CHECKS["qdq_on_dla"] = BeliefCheck(("quantised",), _right)


@CHECKS.needs("bench")
def subgraph_nodes(bench: Evidence) -> Decision:
    """A layer on the DLA has the work of its nodes."""
    row = _row(bench, "dla0")
    layers = _layers_on_dla(bench, row)
    if not layers:
        return undecided("no layer on the DLA was timed")
    known = [layer for layer in layers if bench.number(f"^{layer}flops$")]
    return decide(bool(known), f"{len(known)} of {len(layers)} subgraphs have work")


def _layers_on_dla(bench: Evidence, row: str) -> list[str]:
    """Return the path of each layer of an accelerator that is on the DLA."""
    places = bench.paths(rf"^{row}layers\.\d+\.place$", "dla")
    return [re.escape(path.removesuffix("place")) for path in places]


@CHECKS.needs("lock_in")
def lock_in_on_dla(bench: Evidence) -> Decision:
    """No problem, and the energy of an inference is within a quarter of the net energy."""
    row = _row(bench, "dla0")
    why = "no energy is known"
    joules = bench.need(f"^{row}lock_in.joules_per_piece.value$", why)
    net = bench.need(f"^{row}net_joules_per_inference.value$", why)
    problems = bench.texts(rf"^{row}lock_in.*\.problems\.")
    stages = len(bench.paths(rf"^{row}lock_in_stages\.\w+\.joules_per_piece\.value$"))
    because = f"{joules / net:.2f} of the net energy; {stages} stages; problems: {listed(problems)}"
    return decide(not problems and stages > 0 and abs(joules - net) <= 0.25 * net, because)


@CHECKS.needs("tegrastats", "lock_in")
def sample_age(_: Evidence, bench: Evidence) -> Decision:
    """The delay that lock-in fits to the lines is one of 0 to 50 ms."""
    lag = bench.need(f"^{_row(bench, 'gpu')}lock_in.lag_seconds$", "no delay was fitted")
    return decide(lag <= 0.05, f"readings are {1000 * lag:.0f} ms old")


@CHECKS.needs("sandbox")
def tensorrt_in_sandbox(inside: Evidence) -> Decision:
    """A model runs there on the GPU, and on the DLA if there is one."""
    states = {}
    for path, device in inside.items(r"^bench\..*accelerators\.\d+\.device$"):
        row = re.escape(path.removesuffix("device"))
        states[device] = inside.value(f"^{row}status$")
    if not states:
        return undecided(f"nothing ran: {_words(inside)}")
    has_failed = not {*states.values()} <= {"ok", "unavailable"}
    return decide(not has_failed and states["gpu"] == "ok", f"{states}")


@CHECKS.needs("sandbox")
def hosts_denied(inside: Evidence) -> Decision:
    """The daemon answers to 127.0.0.1, and not to an address of the network."""
    to_itself, to_address = inside.value("^self$"), inside.value("^address$")
    if to_itself in (None, "000"):
        return undecided("the daemon did not answer to this host")
    because = f"status {to_itself} for this host, {to_address} for its address"
    return decide(to_address == "000", because)


@CHECKS.needs("board", "tegrastats", "trtexec_run")
def jetpack5_python(board: Evidence, lines: Evidence, bench: Evidence) -> Decision:
    """This program runs there; lines are read, and trtexec too."""
    if not (board.value("^l4t$") or "").startswith("35."):
        return not_here("this is not JetPack 5", "use Jetson Linux 35 with a Python 3.10")
    _row(bench, "gpu")
    return decide(lines.has("RAM "), f"Python {board.value('^python$')}; trtexec ran")
