"""The command line: one parser, one function a command, one line for each error."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from .. import __version__
from ..parsers.errors import Mendable
from .output import discard, flush

GOOD, FAILED, USAGE, CHECK_SAYS_NO = 0, 1, 2, 3
ACCELERATORS = ("gpu", "dla0", "dla1", "cpu")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 good, 1 failed, 2 usage, 3 a check says no.
    """
    try:
        try:
            arguments = make_parser().parse_args(argv)
            return int(arguments.command(arguments))
        finally:
            flush()
    except Mendable as error:
        print(f"tegrascope: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:
        # The reader of our output went away; that is its right, and no word is due.
        discard()
        return GOOD


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line; the whole usage is in the help."""
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser: argparse.ArgumentParser = _Parser(
        prog="tegrascope",
        description="What a Jetson's DLA, GPU, memory and power rails do while models run.",
    )
    parser.add_argument("--version", action="version", version=f"tegrascope {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    _add_bench(commands)
    _add_exec(commands)
    _add_parse(commands)
    _add_correlate(commands)
    _add_simulate(commands)
    _add_runs(commands)
    _add_engines(commands)
    _add_service(commands)
    _add_check_config(commands)
    _add_doctor(commands)
    return parser


def default_state_dir() -> Path:
    """Return where the run store is kept: systemd's directory, or the user's own."""
    given = os.environ.get("STATE_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError:  # a user without a home, as in a container
        home = "/var/lib"
    return Path(home) / "tegrascope"


def positive(text: str) -> int:
    """Read a number of things of which there is at least one."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return number


def cpus(text: str) -> tuple[int, ...]:
    """Read ``4,5``."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of cores, like 4,5")
    return tuple(map(int, parts))


def positive_seconds(text: str) -> float:
    """Read a stretch of time that is longer than nothing."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    summary: str,
    example: str,
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_state_dir(parser: argparse.ArgumentParser, words: str = "where runs are kept") -> None:
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=default_state_dir(),
        metavar="DIR",
        help=f"{words} (default: %(default)s)",
    )


def _add_run(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands,
        "run",
        "the daemon: telemetry, schedule, store and HTTP",
        "tegrascope run --demo\n  tegrascope run -c /etc/tegrascope.yaml",
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="YAML; see check-config")
    parser.add_argument("--listen", metavar="HOST:PORT", help="overrides http.listen")
    _add_state_dir(parser)
    parser.add_argument(
        "--demo", action="store_true", help="a simulated board and real models on the CPU"
    )

    def command(arguments: argparse.Namespace) -> int:
        from .run_command import run

        return run(arguments)

    parser.set_defaults(command=command)


def devices(text: str) -> tuple[str, ...]:
    """Read accelerators, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    wrong = [name for name in names if name not in ACCELERATORS]
    if wrong or not names:
        said = f"{wrong[0]!r} is no accelerator" if wrong else "no accelerator is named"
        raise argparse.ArgumentTypeError(f"{said}; use {', '.join(ACCELERATORS)}")
    return names


def _add_bench(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands,
        "bench",
        "compare a model across accelerators: latency, energy, GPU freed, right answers",
        "tegrascope bench --builtin resnet50 --on gpu,dla0\n"
        "  tegrascope bench detector.onnx --precision fp16 --fallback forbid -o detector\n"
        "  tegrascope bench --builtin mobilenet --simulate",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="ONNX file, or builtin:NAME")
    parser.add_argument(
        "--builtin", action="append", default=[], metavar="NAME", help="the same as builtin:NAME"
    )
    parser.add_argument(
        "--on",
        type=devices,
        metavar="LIST",
        help="of gpu,dla0,dla1,cpu (default: what this machine has of gpu,dla0, else cpu)",
    )
    parser.add_argument(
        "--backend",
        choices=("tensorrt", "trtexec", "onnxruntime"),
        help="default: tensorrt on gpu and DLA, onnxruntime on cpu",
    )
    parser.add_argument(
        "--precision", choices=("fp32", "fp16", "int8"), help="default: the back-end's"
    )
    parser.add_argument(
        "--optimization-level",
        type=int,
        choices=range(6),
        metavar="0-5",
        help="how hard TensorRT tries: 0 builds fast (default: TensorRT's own)",
    )
    parser.add_argument("--batch", type=positive, default=1, metavar="N")
    parser.add_argument(
        "--streams", type=positive, default=1, metavar="N", help="inferences in flight at once"
    )
    parser.add_argument(
        "--no-cuda-graph", action="store_true", help="launch each inference layer by layer"
    )
    parser.add_argument(
        "--no-transfers", action="store_true", help="leave inputs and outputs on the device"
    )
    parser.add_argument(
        "--fallback",
        choices=("forbid", "allow", "require-pure"),
        default="allow",
        help="for layers that a DLA refuses (default: %(default)s)",
    )
    parser.add_argument(
        "--duration", type=positive_seconds, metavar="S", help="of a round (default: 15)"
    )
    parser.add_argument(
        "--baseline",
        type=positive_seconds,
        metavar="S",
        help="idle time before and after a round, for the net energy (default: 8)",
    )
    parser.add_argument("--warm-up", type=positive_seconds, default=1.0, metavar="S")
    parser.add_argument(
        "--rounds",
        type=positive,
        default=4,
        metavar="N",
        help="of each accelerator at least, made even; more until they agree (default: 4)",
    )
    parser.add_argument(
        "--telemetry",
        choices=("tegrastats", "nvml", "simulator", "none"),
        help="default: tegrastats, else nvml, else none",
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="take telemetry: and board: from it"
    )
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="a simulated board, its accelerators played by the CPU: to try the command",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="for result.json and report.html (default: tegrascope-bench-DATE-TIME)",
    )
    parser.add_argument("--json", action="store_true", help="print result.json, not the table")
    parser.add_argument(
        "--nsys",
        action="store_true",
        help="one more pass of each under Nsight Systems, its report beside the results",
    )
    sharing = parser.add_argument_group("how the workers share the machine")
    sharing.add_argument("--nice", type=int, choices=range(20), default=0, metavar="0-19")
    sharing.add_argument(
        "--cpus", type=cpus, default=(), metavar="LIST", help="cores to run on, as 4,5"
    )
    sharing.add_argument(
        "--mps-percentage",
        type=int,
        choices=range(1, 101),
        metavar="1-100",
        help="share of the GPU's multiprocessors, under NVIDIA MPS",
    )
    _add_state_dir(parser, "where models and engines are cached")

    def command(arguments: argparse.Namespace) -> int:
        if not arguments.models and not arguments.builtin:
            parser.error("no model is named: give an ONNX file, or --builtin resnet50")
        from .bench.command import bench

        return bench(arguments)

    parser.set_defaults(command=command)


def _add_exec(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands,
        "exec",
        "run any program as a measured window; the exit code is the program's",
        "tegrascope exec --workload detector -- ./detect --frames 3000\n"
        "  tegrascope exec --workload detector --inferences 3000 --telemetry simulator -- ./detect",
    )
    parser.usage = "tegrascope exec --workload NAME [options] -- CMD …"
    parser.add_argument("--workload", required=True, metavar="NAME", help="what to call it")
    parser.add_argument(
        "--device", choices=("gpu", "dla0", "dla1", "cpu", "external"), help="what it runs on"
    )
    parser.add_argument("--inferences", type=positive, metavar="N", help="how many it makes")
    parser.add_argument("--batch", type=positive, metavar="N", help="inputs an inference")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole report, too")
    daemon = parser.add_argument_group("measured by the daemon, where one runs")
    daemon.add_argument("--url", help="default: TEGRASCOPE_URL, else http://127.0.0.1:9754")
    daemon.add_argument("--token-file", type=Path, metavar="FILE", help="the daemon's")
    here = parser.add_argument_group("measured here, without a daemon or with any of these")
    here.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="its telemetry, and the workload's"
    )
    here.add_argument(
        "--telemetry", metavar="SOURCE", help="tegrastats (default), simulator, … as in the file"
    )
    here.add_argument(
        "--interval", type=positive_seconds, metavar="SECONDS", help="between samples (0.103)"
    )
    here.add_argument(
        "--baseline",
        type=positive_seconds,
        metavar="SECONDS",
        help="idle time measured before and after, for the net energy",
    )
    here.add_argument("--state-dir", type=Path, metavar="DIR", help="keep the run in its store")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- CMD …")

    def command(arguments: argparse.Namespace) -> int:
        from .exec_command import execute

        return execute(arguments)

    parser.set_defaults(command=command)


def _add_parse(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands,
        "parse",
        "turn tegrastats lines into records",
        "tegrascope parse robot.log.gz | jq .rails\n  tegrastats | tegrascope parse -",
    )
    parser.add_argument(
        "files", nargs="*", default=["-"], metavar="FILE", help="plain or gzip; - is standard input"
    )
    parser.add_argument("-f", "--format", choices=("jsonl", "csv", "parquet"), default="jsonl")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    parser.add_argument("--keep-lines", action="store_true", help="keep each line in source_line")

    def command(arguments: argparse.Namespace) -> int:
        from .parse_command import parse

        return parse(arguments)

    parser.set_defaults(command=command)


def _add_correlate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands,
        "correlate",
        "pair runs with recorded logs: energy, load and flags of each",
        "tegrascope correlate --telemetry robot.log --runs runs.csv -o energy.csv\n"
        "  tegrascope correlate --telemetry robot.log --runs runs.csv --timezone Europe/Berlin",
    )
    parser.add_argument(
        "--telemetry",
        nargs="+",
        required=True,
        metavar="LOG",
        help="what tegrastats printed, plain or gzip",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        required=True,
        metavar="FILE",
        help="CSV of name,start,end,inferences and, if you like, device and batch; start and end"
        " as ISO 8601, as seconds since 1970, or as seconds since the first record",
    )
    parser.add_argument("-f", "--format", choices=("csv", "parquet", "jsonl"), default="csv")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    parser.add_argument(
        "--timezone", metavar="ZONE", help="of the printed times, like Europe/Berlin"
    )
    parser.add_argument(
        "--interval",
        type=positive_seconds,
        default=1.0,
        metavar="SECONDS",
        help="between two records of a log that prints no time (default: %(default)s)",
    )
    parser.add_argument(
        "--board", metavar="NAME", help="rail rule to apply; without it the rails tell"
    )

    def command(arguments: argparse.Namespace) -> int:
        from .correlate_command import correlate

        return correlate(arguments)

    parser.set_defaults(command=command)


def _add_simulate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands,
        "simulate",
        "print the tegrastats lines of a simulated board",
        "tegrascope simulate --board orin-nx-16gb --interval 100 --seed 7",
    )
    parser.add_argument(
        "--board",
        default="agx-orin-64gb",
        choices=("agx-orin-64gb", "orin-nx-16gb", "orin-nano-8gb"),
    )
    parser.add_argument(
        "--interval",
        type=positive,
        default=1000,
        metavar="MS",
        help="between two lines, as of tegrastats (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--load", type=Path, metavar="FILE", help="CSV of at_seconds,lane,ratio")
    parser.add_argument(
        "--unprivileged", action="store_true", help="print what an ordinary user sees"
    )
    parser.add_argument("--lines", type=positive, metavar="N", help="stop after so many")

    def command(arguments: argparse.Namespace) -> int:
        from .simulate_command import simulate

        return simulate(arguments)

    parser.set_defaults(command=command)


def _add_runs(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands, "runs", "look at the run store", "tegrascope runs list --workload resnet50-dla0"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    listing = _command(
        actions, "list", "list finished runs, newest first", "tegrascope runs list -n 5"
    )
    listing.add_argument(
        "-n", "--number", type=positive, default=20, metavar="N", help="at most so many"
    )
    listing.add_argument("--workload", metavar="NAME")
    showing = _command(actions, "show", "show all of one run", "tegrascope runs show 0193a1")
    showing.add_argument("run_id", metavar="ID", help="or an unmistakable beginning or end of it")
    exporting = _command(
        actions, "export", "write all runs", "tegrascope runs export -f parquet -o runs.parquet"
    )
    exporting.add_argument("-f", "--format", choices=("csv", "parquet", "jsonl"), default="jsonl")
    exporting.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    exporting.add_argument("--workload", metavar="NAME")
    for name, action in (("list", listing), ("show", showing), ("export", exporting)):
        _add_state_dir(action, "where runs are kept, or the database itself")
        action.set_defaults(command=_runs_action(name))


def _runs_action(name: str) -> Callable[[argparse.Namespace], int]:
    def command(arguments: argparse.Namespace) -> int:
        import sqlite3

        from . import runs_command

        try:
            return int(getattr(runs_command, f"{name}_runs")(arguments))
        except sqlite3.Error as error:
            raise Mendable(
                f"the run store in {arguments.state_dir} cannot be read ({error})",
                "name the daemon's directory with --state-dir",
            ) from None

    return command


def _devices(text: str) -> list[str]:
    """Read ``gpu,dla0``."""
    devices = text.split(",")
    for device in devices:
        if device not in ("gpu", "dla0", "dla1"):
            raise argparse.ArgumentTypeError(f"{device!r} is none of gpu, dla0, dla1")
    return devices


def _duration(text: str) -> float:
    """Read ``30d`` as seconds."""
    from .config import read_duration

    try:
        return float(str(read_duration(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_engines(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands,
        "engines",
        "look at, build and remove TensorRT engines",
        "tegrascope engines build builtin:resnet50 --on gpu,dla0 --precision fp16",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    listing = _command(
        actions, "list", "list the engines that are built", "tegrascope engines list"
    )
    building = _command(
        actions,
        "build",
        "build an engine now, so that no run has to wait for it",
        "tegrascope engines build model.onnx --on dla0 --precision int8 --fallback require-pure",
    )
    building.add_argument("model", metavar="MODEL", help="ONNX file, or builtin:resnet50")
    building.add_argument(
        "--on", type=_devices, default=["gpu"], metavar="DEVICES", help="of gpu, dla0, dla1"
    )
    building.add_argument("--precision", choices=("fp32", "fp16", "int8"))
    building.add_argument(
        "--fallback",
        choices=("forbid", "allow", "require-pure"),
        default="allow",
        help="for layers that a DLA refuses (default: %(default)s)",
    )
    building.add_argument("--batch", type=positive, default=1, metavar="N")
    building.add_argument(
        "--level",
        type=int,
        choices=range(6),
        help="how long to look for faster kernels; a workload finds the engine only with the same"
        " optimization_level",
    )
    building.add_argument(
        "--timeout",
        type=positive_seconds,
        default=3600.0,
        metavar="SECONDS",
        help="give up after so long (default: %(default)s)",
    )
    pruning = _command(
        actions, "prune", "remove engines", "tegrascope engines prune --older-than 30d"
    )
    which = pruning.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true")
    which.add_argument(
        "--older-than", type=_duration, metavar="TIME", help="not used for so long, like 30d"
    )
    which.add_argument(
        "--keep", type=positive, metavar="N", help="all but the N that were used last"
    )
    for name, action in (("list", listing), ("build", building), ("prune", pruning)):
        _add_state_dir(action, "whose engines")
        action.set_defaults(command=_engines_action(name))


def _engines_action(name: str) -> Callable[[argparse.Namespace], int]:
    def command(arguments: argparse.Namespace) -> int:
        from . import engines_command

        return int(getattr(engines_command, f"{name}_engines")(arguments))

    return command


def _add_service(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands,
        "service",
        "put the systemd units in place, or take them away",
        "tegrascope service install --dry-run\n  sudo tegrascope service install",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    installing = _command(
        actions,
        "install",
        "write units, user and settings; nothing is started or enabled",
        "tegrascope service install --dry-run\n"
        "  sudo tegrascope service install && sudo systemctl enable --now tegrascope",
    )
    installing.add_argument(
        "--program", metavar="COMMAND", help="what the unit runs (default: this installation)"
    )
    removing = _command(
        actions,
        "remove",
        "stop the service and take its units away; runs and settings stay",
        "tegrascope service remove --dry-run\n  sudo tegrascope service remove --purge",
    )
    removing.add_argument(
        "--purge", action="store_true", help="delete settings, runs and the user as well"
    )
    for name, action in (("install", installing), ("remove", removing)):
        action.add_argument(
            "--root", type=Path, default=Path("/"), metavar="DIR", help="of an image (default: /)"
        )
        action.add_argument(
            "--dry-run", action="store_true", help="say what would be done, and do nothing"
        )
        action.set_defaults(command=_service_action(name), action=name)


def _service_action(name: str) -> Callable[[argparse.Namespace], int]:
    def command(arguments: argparse.Namespace) -> int:
        from . import service_command

        return int(getattr(service_command, name)(arguments))

    return command


def _add_check_config(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands,
        "check-config",
        "validate a configuration; every error with its line",
        "tegrascope check-config /etc/tegrascope.yaml",
    )
    parser.add_argument("file", type=Path, metavar="FILE")

    def command(arguments: argparse.Namespace) -> int:
        from .config_file import ConfigError, load_config

        try:
            config = load_config(arguments.file)
        except ConfigError as error:
            print(*error.problems, sep="\n", file=sys.stderr)
            return CHECK_SAYS_NO
        print(f"{arguments.file}: good, {len(config.workloads)} workload(s)")
        for line in config.advice():
            print(f"note: {line}")
        return GOOD

    parser.set_defaults(command=command)


def _add_doctor(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = _command(
        commands,
        "doctor",
        "say what this machine has, what is missing, and what mends it",
        "tegrascope doctor\n  sudo tegrascope doctor -c /etc/tegrascope.yaml --json",
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="what is to run here")
    parser.add_argument(
        "--state-dir", type=Path, metavar="DIR", help="where runs are kept (default: as of run)"
    )
    parser.add_argument("--json", action="store_true", help="for programs; see docs/doctor.md")

    def command(arguments: argparse.Namespace) -> int:
        from .doctor.command import doctor

        return doctor(arguments)

    parser.set_defaults(command=command)


if __name__ == "__main__":
    sys.exit(main())
