"""``tegrascope engines list|show|build|calibrate|debug-precision|prune``."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ...collectors.backends.engine_cache import EngineCache, EngineFacts, Entry
from ...collectors.catalog import LOADABLE_BACKEND, default_backend
from ...collectors.models.data_sets import input_files
from ...collectors.paths import is_directory
from ...daemon.commands import Options, add_command, devices, duration, positive, ratio
from ...daemon.outputs import check_output, standard_output
from ...daemon.session.executor import Executor
from ...daemon.settings.config import new_run_id
from ...daemon.terminal import CHECK_SAYS_NO, FAILED, GOOD, age, amount, print_table
from ...daemon.terminal import duration as duration_of
from ...parsers.errors import UsageError, UserError
from ...parsers.inference.calibration import ALGORITHMS, parse_calibration
from ...parsers.inference.events import Loaded, Order, Phase, Progress, RunEvent
from ...parsers.inference.layers import EngineLayer, is_constant, read_layers
from ...parsers.inference.placement import Built, Precision
from ...parsers.records import Record
from ...parsers.values import printable
from ..results.document import Facts, print_document
from ..results.layers import layer_table

if TYPE_CHECKING:
    from ..bench.precision_search import PrecisionSearch

_TITLES = ("engine", "model", "device", "batch", "precision", "MB", "verdict", "used")
# A build that hangs and that nobody watches ends then. Others use Ctrl-C or timeout(1).
_LONGEST_SECONDS = 86_400.0
_PHASES = {"load": "loads the model", "warm_up": "runs it once"}


class CachedEngine(EngineFacts):
    """An engine for programs; ``layers`` are only in ``engines show``."""

    used_wall_ns: int
    layers: tuple[EngineLayer, ...] = ()


class EngineList(Record):
    """The engines in the cache, the last used first."""

    directory: str
    engines: tuple[CachedEngine, ...]


class EngineBuilds(Record):
    """The new or cached engine of each device; a device that failed is absent."""

    engines: dict[str, Built]


def _for_programs(entry: Entry, layers: Sequence[EngineLayer] = ()) -> CachedEngine:
    facts = entry.sidecar.model_dump(exclude={"inspector", "log"})
    return CachedEngine(**facts, used_wall_ns=entry.used_wall_ns, layers=tuple(layers))


def list_engines(arguments: argparse.Namespace) -> int:
    """Print the engines in the cache, the last used first."""
    directory = arguments.state_dir / "engines"
    entries = EngineCache(directory).entries() if is_directory(directory) else []
    if arguments.json:
        listed = EngineList(directory=str(directory), engines=tuple(map(_for_programs, entries)))
        print(listed.model_dump_json(exclude_none=True), file=standard_output())
        return GOOD
    now_ns = time.time_ns()
    print_table(_TITLES, [_row(entry, now_ns) for entry in entries])
    total_bytes = 0
    for entry in entries:
        total_bytes += entry.sidecar.plan_bytes
    megabytes = total_bytes / 1e6
    print(f"{len(entries)} engine(s), {megabytes:.1f} MB in {directory}", file=sys.stderr)
    return GOOD


def show_engine(arguments: argparse.Namespace) -> int:
    """Print the facts of an engine and its layers, with what was fused into each."""
    directory = arguments.state_dir / "engines"
    if not is_directory(directory):
        raise UserError(
            f"there are no engines in {directory}", "build one: tegrascope engines build"
        )
    entry = EngineCache(directory).find(arguments.key)
    sidecar = entry.sidecar
    layers = read_layers(sidecar.inspector)
    if arguments.json:
        document = _for_programs(entry, layers)
        print(document.model_dump_json(exclude_none=True, indent=1), file=standard_output())
        return GOOD
    computing = [layer for layer in layers if not is_constant(layer.name, layer.kind)]
    facts = _facts_of(sidecar, computing)
    if computing:
        print_document([Facts(facts), layer_table(computing, is_page=True)])
    else:
        print_document([Facts(facts)])
    return GOOD


def _facts_of(sidecar: EngineFacts, layers: Sequence[EngineLayer]) -> dict[str, str | None]:
    """Return what is known of an engine, for people; its layers only as a number."""
    built = sidecar.built
    facts = {
        "engine": sidecar.key,
        "model": sidecar.model,
        "built": datetime.fromtimestamp(sidecar.built_wall_ns / 1e9).isoformat(" ", "seconds"),
        "took": None,
        "size": amount(sidecar.plan_bytes, "B"),
    }
    if built.build_seconds is not None:
        facts["took"] = duration_of(built.build_seconds)
    for name, text in sidecar.parts.items():
        if name != "model":
            facts[name.replace("_", " ")] = text
    nodes: set[str] = set()
    for layer in layers:
        nodes.update(layer.nodes)
    types = [f"{name} {count}" for name, count in built.layer_types.items()]
    facts["layer types"] = ", ".join(types)
    facts["placement"] = built.placement.verdict
    facts["int8 scales"] = built.int8_scales
    facts["notes"] = "; ".join(built.notes)
    facts["layers"] = f"{len(layers)}, made of {len(nodes)} ONNX nodes"
    if not layers:
        facts["layers"] = "not recorded"
    return facts


def build_engines(arguments: argparse.Namespace) -> int:
    """Build an engine for each device, in a process of its own, and run it once."""
    worst = GOOD
    engines = {}
    for device in arguments.on:
        status, built = _build(arguments, device)
        worst = max(worst, status)
        if built is not None:
            engines[device] = built
            if not arguments.json:
                _print_built(device, built)
    if arguments.json:
        document = EngineBuilds(engines=engines)
        print(document.model_dump_json(exclude_none=True), file=standard_output())
    return worst


def prune_engines(arguments: argparse.Namespace) -> int:
    """Remove engines by age or number, and files that belong to none."""
    directory = arguments.state_dir / "engines"
    if not is_directory(directory):
        print(f"there are no engines in {directory}", file=sys.stderr)
        return GOOD
    cache = EngineCache(directory)
    entries = cache.entries()
    removed = entries if arguments.all else []
    if arguments.keep is not None:
        removed = entries[arguments.keep :]
    if arguments.older_than is not None:
        limit_ns = time.time_ns() - int(arguments.older_than * 1e9)
        removed = [entry for entry in entries if entry.used_wall_ns < limit_ns]
    count, freed_bytes = 0, 0
    for entry in removed:
        size = cache.remove(entry)
        if size is not None:
            count += 1
            freed_bytes += size
    cache.sweep()
    message = f"{count} engine(s) removed, {freed_bytes / 1e6:.1f} MB"
    if count < len(removed):
        message += f", {len(removed) - count} in use stay"
    print(message, file=sys.stderr)
    return GOOD


def calibrate(arguments: argparse.Namespace) -> int:
    """Make a calibration cache of a model from inputs, in a worker on the GPU."""
    input_files(arguments.data)
    check_output(arguments.output)
    status, built = _work(
        arguments,
        "gpu",
        precision="int8",
        # The engine is not kept, so it is built as fast as possible.
        optimization_level=0,
        calibration=str(arguments.data.absolute()),
        calibration_method=arguments.method,
        calibration_file=str(arguments.output.absolute()),
        preprocess=arguments.preprocess,
    )
    if built is not None:
        scales = parse_calibration(arguments.output.read_text(encoding="utf-8")).scales
        print(f"{arguments.output}: {len(scales)} scales; use it as calibration: or --calibration")
    return status


def _build(arguments: argparse.Namespace, device: str) -> tuple[int, Built | None]:
    """Build the engine of a device, as the arguments describe it."""
    backend = default_backend(device)
    if arguments.standalone:
        backend = LOADABLE_BACKEND
    return _work(
        arguments,
        device,
        backend=backend,
        rebuild=arguments.again,
        **_engine_settings(arguments),
    )


def _engine_settings(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the settings of an order that ``Options.engine`` adds."""
    return {
        "precision": arguments.precision,
        "fallback": arguments.fallback,
        "layer_precisions": dict(arguments.layer_precision),
        "precision_constraints": arguments.precision_constraints,
        "optimization_level": arguments.optimization_level,
        "calibration": arguments.calibration and _absolute(arguments.calibration),
        "preprocess": arguments.preprocess,
        "plugins": tuple(map(_absolute, arguments.plugin)),
        "shapes": dict(arguments.shape),
    }


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _print_built(device: str, built: Built) -> None:
    """Print one line about an engine, and what its builder noted below it."""
    how = f"built in {built.build_seconds or 0:.1f} s"
    if built.is_cached:
        how = "was there already"
    elif built.circumstances is not None and built.circumstances.waited_seconds:
        how += f" after waiting {built.circumstances.waited_seconds:.0f} s for other builds"
    types = [f"{count} {name}" for name, count in built.layer_types.items()]
    print(
        f"{device}: engine {(built.engine_key or '')[:12]} {how},"
        f" {(built.engine_bytes or 0) / 1e6:.1f} MB,"
        f" layers: {', '.join(types) or 'unknown'}, {built.placement.verdict}"
    )
    for note in built.notes:
        print(f"  {printable(note)}")


def debug_precision(arguments: argparse.Namespace) -> int:
    """Print the fewest layers that have to be held at a higher precision for right outputs."""
    from ..bench.precision_search import find_layers_to_hold

    if arguments.precision == "fp32":
        raise UsageError("no layer of an fp32 engine can be held higher", "give fp16 or int8")
    precision = arguments.precision or "fp16"
    hold: Precision = arguments.hold or ("fp16" if precision == "int8" else "fp32")
    if hold == precision:
        raise UsageError(f"the engine is {hold} already", "give a higher precision to --hold")
    device = arguments.on
    changes = _engine_settings(arguments)
    changes["precision"] = precision
    if arguments.inputs is not None:
        changes["inputs_file"] = _absolute(arguments.inputs)
    found = find_layers_to_hold(
        _order(arguments, device, **changes),
        hold,
        lambda line: print(f"{device}: {printable(line)}", file=sys.stderr),
        among=arguments.among,
        tolerance=arguments.tolerance,
        most_builds=arguments.most_builds,
    )
    if arguments.json:
        print(found.model_dump_json(exclude_none=True), file=standard_output())
    else:
        _print_search(found)
    return GOOD if found.verdict in ("none_needed", "found") else CHECK_SAYS_NO


def _print_search(found: "PrecisionSearch") -> None:
    """Print the layers as the setting that holds them, which YAML and JSON have in common."""
    engines = f"{len(found.trials)} engines"
    if found.verdict == "none_needed":
        print(f"outputs in {found.precision} are right: no layer has to be held")
        return
    if found.verdict == "not_enough":
        words = f"all {found.candidates} nodes at {found.hold} are not enough"
        print(f"{words}: the precision of these layers is not the cause")
        return
    if found.verdict == "stopped" and not found.layers:
        print(f"no set of layers was found with {engines}: give more with --most-builds")
        return
    words = f"{len(found.layers)} of {found.candidates} nodes have to be held at {found.hold}"
    if found.verdict == "stopped":
        words = f"{len(found.layers)} of {found.candidates} nodes at {found.hold} are enough"
        engines += ", which did not show the fewest"
    print(f"{words} ({engines})")
    print(f"layer_precisions: {json.dumps(dict.fromkeys(found.layers, found.hold))}")


def _order(arguments: argparse.Namespace, device: str, **changes: object) -> Order:
    """Return the order of one inference, for which an engine is built."""
    fields = {
        "run_id": new_run_id(),
        "backend": "tensorrt",
        "device": device,
        "model": arguments.model,
        "model_directory": str((arguments.state_dir / "models").absolute()),
        "engine_directory": str((arguments.state_dir / "engines").absolute()),
        "batch": arguments.batch,
        "cuda_graph": False,
        "warm_up_seconds": 0.0,
        "count": 1,
    }
    return Order.model_validate(fields | changes)


def _work(
    arguments: argparse.Namespace, device: str, **changes: object
) -> tuple[int, Built | None]:
    """Build an engine in a worker and run it once; return the exit status and the record."""
    order = _order(arguments, device, **changes)
    loaded: Built | None = None

    def on_event(event: RunEvent) -> None:
        nonlocal loaded
        if isinstance(event, Phase) and event.edge == "begin" and event.phase in _PHASES:
            print(f"{device}: {_PHASES[event.phase]} …", file=sys.stderr)
        elif isinstance(event, Progress):
            print(f"{device}: {printable(event.doing)} …", file=sys.stderr)
        elif isinstance(event, Loaded) and event.built is not None:
            loaded = event.built

    with closing(Executor(device)) as executor:
        finished = executor.run(order, _LONGEST_SECONDS, on_event)
    if finished.outcome == "ok":
        return GOOD, loaded
    status = CHECK_SAYS_NO
    if finished.skip_reason != "unavailable":
        status = FAILED
        for line in finished.worker_log:
            print(f"  | {printable(line)}", file=sys.stderr)
    print(f"tegrascope: {device}: {printable(finished.reason or '')}", file=sys.stderr)
    return status, None


def _row(entry: Entry, now_ns: int) -> tuple[str, ...]:
    sidecar, built, parts = entry.sidecar, entry.sidecar.built, entry.sidecar.parts
    precision = next(iter(built.layer_types), parts.get("precision", "-"))
    if built.int8_scales == "dummy":
        precision += " (dummy)"
    return (
        sidecar.key[:12],
        sidecar.model,
        parts.get("device", "-"),
        parts.get("batch", "-"),
        precision,
        f"{sidecar.plan_bytes / 1e6:.1f}",
        built.placement.verdict,
        age((now_ns - entry.used_wall_ns) / 1e9),
    )


EXAMPLE = "tegrascope engines build builtin:resnet50 --on gpu,dla0 --precision fp16"


def add(option: Options) -> None:
    """Add the actions."""
    actions = option.actions()
    example, summary = "tegrascope engines list", "list the engines that are built"
    listing = add_command(actions, "list", list_engines, example, summary)
    showing = add_command(
        actions,
        "show",
        show_engine,
        "tegrascope engines show 3f9a1c",
        "print the layers of an engine, and the ONNX nodes that were fused into each",
    )
    listing("--json", "print one JSON object")
    showing("key KEY", "the key of engines list, or its beginning")
    showing("--json", "print one JSON object")
    building = add_command(
        actions,
        "build",
        build_engines,
        "tegrascope engines build model.onnx --on dla0 --precision int8 --fallback require-pure",
        "build an engine now, so that no run has to wait for it",
    )
    known = ("gpu", "dla0", "dla1")
    building("model MODEL", "ONNX file, or builtin:resnet50")
    building(
        "--on DEVICES",
        f"of {', '.join(known)}",
        type=lambda text: devices(text, known),
        default=("gpu",),
    )
    building.engine()
    building("--standalone", "a loadable of a DLA, for backend: cudla, in place of an engine")
    building("--json", "print one JSON object, with what is recorded of each engine")
    building("--again", "even if it is there: beside other work a worse one may have been built")
    debugging = add_command(
        actions,
        "debug-precision",
        debug_precision,
        "tegrascope engines debug-precision model.onnx --precision int8 --calibration int8.cache",
        "find the fewest layers to hold at a higher precision, so that outputs are right",
    )
    debugging("model MODEL", "ONNX file, or builtin:resnet50")
    debugging("--on DEVICE", "(default: %(default)s)", choices=known, default="gpu")
    debugging("--hold", "default: fp16 in int8, else fp32", choices=("fp16", "fp32"))
    words = "only nodes of this name, in which * is any text; may be repeated (default: all)"
    debugging("--among NAME", words, action="append", default=[])
    debugging("--inputs PATH", "inputs to compare outputs for (default: made-up ones)")
    words = "largest relative error of right outputs (default: that of bench)"
    debugging("--tolerance RATIO", words, type=ratio)
    words = "stop after so many engines (default: %(default)s)"
    debugging("--most-builds N", words, type=positive, default=100)
    debugging.engine()
    debugging("--json", "print one JSON object")
    calibrating = add_command(
        actions,
        "calibrate",
        calibrate,
        "tegrascope engines calibrate model.onnx --data images/ -o int8.cache",
        "make a calibration cache, the scales of int8, from inputs of a model",
    )
    calibrating("model MODEL", "ONNX file, or builtin:resnet50")
    calibrating("--data DIR", "images or arrays: a folder, or a .npz or .npy file", required=True)
    calibrating("-o, --output FILE", "the cache", required=True)
    calibrating("--method", "(default: %(default)s)", choices=tuple(ALGORITHMS), default="entropy")
    calibrating("--batch N", "inputs at once (default: %(default)s)", default=1)
    calibrating.preprocess()
    example = "tegrascope engines prune --older-than 30d"
    pruning = add_command(actions, "prune", prune_engines, example, "remove engines")
    which = pruning.one_of(required=True)
    which("--all")
    which("--older-than TIME", "not used for so long, like 30d", type=duration)
    which("--keep N", "all but the N that were used last")
    for action in (building, calibrating, debugging):
        action.state_dir("whose engines")
    for action in (listing, showing, pruning):
        action.state_dir("whose engines", "engines")
