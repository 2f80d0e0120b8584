"""The command line: data on stdout, words on stderr, a status with a meaning, never a traceback."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tegrascope.daemon.cli import main
from tegrascope.daemon.measure.run_report import Distribution, Energy, RailEnergy, RunReport
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.inference.placement import Built, Placement
from tegrascope.parsers.tegrastats import parse_line

S = 1_000_000_000
LINES = (
    "11-21-2025 08:49:48 RAM 936/3964MB (lfb 366x4MB) GR3D_FREQ 99%@921 VDD_IN 5139mW/4890mW",
    "11-21-2025 08:49:49 RAM 937/3964MB (lfb 366x4MB) GR3D_FREQ 50%@921 WHAT=7 VDD_IN 5200mW/1mW",
)
COMMANDS = (
    "run",
    "bench",
    "exec",
    "parse",
    "correlate",
    "simulate",
    "runs",
    "runs list",
    "runs show",
    "runs export",
    "report",
    "service",
    "service install",
    "service remove",
    "check-config",
)


@pytest.fixture
def log(tmp_path):
    """Two lines of tegrastats and one of something else."""
    path = tmp_path / "robot.log"
    path.write_text("\n".join((LINES[0], "Killed", LINES[1], "")))
    return path


@pytest.fixture
def state_dir(tmp_path):
    """A store with a good run and a failed one."""
    store = Store(tmp_path / "state" / "tegrascope.db")
    figures = ("min", "mean", "p50", "p90", "p95", "p99", "p999", "max")
    store.finish(
        RunReport(
            run_id="0193a1-good",
            workload="resnet50",
            backend="onnxruntime",
            device="dla0",
            outcome="ok",
            started_wall_ns=1000 * S,
            started_ns=1,
            ended_ns=2,
            latency=Distribution(count=3, **{f"{name}_seconds": 0.0125 for name in figures}),
            energy=Energy(
                total_rails=("VDD_IN",),
                rails={"VDD_IN": RailEnergy(gross_joules=10, mean_watts=5.25)},
                gross_joules_per_inference=0.2,
            ),
            built=Built(
                layer_types={"fp16": 3},
                placement=Placement(verdict="mixed", loadables=1, gpu_layers=("a + b",)),
            ),
            quality=("simulated", "not_steady"),
        )
    )
    store.finish(
        RunReport(
            run_id="0193a2-bad",
            workload="mobilenet",
            backend="onnxruntime",
            device="gpu",
            outcome="failed",
            reason="signal 9",
            started_wall_ns=2000 * S,
            started_ns=1,
            ended_ns=2,
        )
    )
    store.close()
    return tmp_path / "state"


def run_cli(arguments: Sequence[object], **options: object) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process of its own, as a shell would."""
    return subprocess.run(
        [sys.executable, "-m", "tegrascope", *map(str, arguments)],
        **{"capture_output": True, "text": True, "check": False, "timeout": 60, **options},
    )


def is_one_line(told: str) -> bool:
    return told.startswith("tegrascope") and told.count("\n") == 1 and told.endswith("\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    """Each command explains itself, and shows a line that can be copied."""
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"example:\n  tegrascope {command.split()[0]}" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "COMMAND"),
        (["pars"], "invalid choice: 'pars'"),
        (["runs"], "ACTION"),
        (["parse", "-f", "xml"], "invalid choice: 'xml'"),
        (["simulate", "--lines", "0"], "'0' is not a number from 1 on"),
        (["simulate", "--interval", "fast"], "'fast' is not a number from 1 on"),
        (["runs", "list", "-n", "-1"], "-n"),
        (["check-config"], "FILE"),
    ],
)
def test_misuse_is_one_line_and_status_2(arguments, said, capsys):
    """A wrong argument is told in one line that leads to the help."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    assert is_one_line(told.err)
    assert said in told.err
    assert "--help" in told.err


def test_parse_prints_one_record_a_line(log, capsys):
    """Records go to standard output, the count to standard error, and other lines are skipped."""
    assert main(["parse", str(log)]) == 0
    told = capsys.readouterr()
    records = [json.loads(line) for line in told.out.splitlines()]
    assert [record["rails"]["VDD_IN"]["instant_watts"] for record in records] == [5.139, 5.2]
    assert records[1]["unparsed"] == ["WHAT=7"]
    assert "source_line" not in records[0]
    assert told.err.startswith("3 lines: 2 records, 1 skipped (1 ")
    assert "; 1 words not understood" in told.err


def test_parse_keeps_lines_when_asked(log, capsys):
    """``--keep-lines`` puts each line beside its record, verbatim."""
    main(["parse", "--keep-lines", str(log)])
    records = map(json.loads, capsys.readouterr().out.splitlines())
    assert tuple(record["source_line"] for record in records) == LINES


def test_parse_reads_gzip(log, tmp_path, capsys):
    """A packed log reads as the plain one, whatever its name."""
    main(["parse", str(log)])
    plain = capsys.readouterr()
    packed = tmp_path / "robot"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert main(["parse", str(packed)]) == 0
    assert capsys.readouterr() == plain


def test_damaged_gzip_gives_what_came_before(log, tmp_path, capsys):
    """A packed log that was cut off is told, after the records that could be read."""
    whole = gzip.compress(log.read_bytes() * 2000)
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    assert main(["parse", str(tmp_path / "cut.gz")]) == 1
    told = capsys.readouterr()
    assert len(told.out.splitlines()) > 100
    assert "cut.gz cannot be read" in told.err


def test_unreadable_file_stops_no_other(log, tmp_path, capsys):
    """Of several files those that can be read are, and the status says that one could not."""
    assert main(["parse", str(log), str(tmp_path / "none.log"), str(tmp_path), str(log)]) == 1
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 4
    missing, directory, count = told.err.splitlines()
    assert missing.startswith(f"tegrascope: {tmp_path / 'none.log'} is not there: ")
    assert directory.startswith(f"tegrascope: {tmp_path} is a directory: ")
    assert count.startswith("6 lines: 4 records")


def test_parse_of_standard_input(log):
    """Without a file, and with ``-``, lines come from a pipe."""
    for arguments in (["parse"], ["parse", "-"]):
        told = run_cli(arguments, input=log.read_text())
        assert told.returncode == 0
        assert len(told.stdout.splitlines()) == 2


@pytest.mark.parametrize("missing", ["pandas", "pyarrow"])
def test_tables_need_the_extra(log, tmp_path, missing):
    """Without it there is one line that says what to install."""
    (tmp_path / f"{missing}.py").write_text("raise ImportError")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    told = run_cli(["parse", "-f", "csv", str(log)], env=environment)
    remedy = "pip install 'tegrascope[frames]'"
    assert told.returncode == 1
    assert told.stderr == f"tegrascope: {missing} is not installed: {remedy}\n"


def test_lines_are_kept_in_records_alone(log, capsys):
    """A table has no place for them, and says so."""
    assert main(["parse", "--keep-lines", "-f", "csv", str(log)]) == 1
    assert "use it with -f jsonl" in capsys.readouterr().err


def test_nothing_parsed_is_a_failure(tmp_path, capsys):
    """A log without a single record is most likely the wrong file: status 1."""
    (tmp_path / "other.log").write_text("hello\nworld\n")
    assert main(["parse", str(tmp_path / "other.log")]) == 1
    assert capsys.readouterr().err.startswith("2 lines: 0 records, 2 skipped")


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_formats_hold_the_same_numbers(kind, log, tmp_path):
    """Records, table and Parquet file are the same data, to a file and to standard output."""
    pandas = pytest.importorskip("pandas")
    output = tmp_path / f"out.{kind}"
    assert main(["parse", "-f", kind, "-o", str(output), str(log)]) == 0
    told = run_cli(["parse", "-f", kind, log], text=False)
    assert told.returncode == 0
    for source in (output, io.BytesIO(told.stdout)):
        if kind == "jsonl":
            frame = pandas.json_normalize(list(pandas.read_json(source, lines=True).rails))
            watts = frame["VDD_IN.instant_watts"]
        else:
            frame = pandas.read_csv(source) if kind == "csv" else pandas.read_parquet(source)
            watts = frame["rails.VDD_IN.instant_watts"]
        assert list(watts) == [5.139, 5.2]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_unwritable_output_is_one_line(kind, log, tmp_path, capsys):
    """A place that cannot be written, and a disk that is full, are told with their remedy."""
    if kind != "jsonl":
        pytest.importorskip("pyarrow")
    for place in (tmp_path / "none" / "out", tmp_path):
        assert main(["parse", "-f", kind, "-o", str(place), str(log)]) == 1
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith(f"tegrascope: {place}: ")
        assert last.endswith(": name a writable file with -o")
    with Path("/dev/full").open("wb") as full:
        told = run_cli(
            ["parse", "-f", kind, log], stdout=full, stderr=subprocess.PIPE, capture_output=False
        )
    assert told.returncode == 1
    assert "tegrascope: standard output: No space left" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    "arguments", ["parse LOG", "parse -f csv LOG", "runs list", "runs export", "--help"]
)
def test_closed_pipe_ends_without_a_word(arguments, log, state_dir):
    """A reader that has seen enough, such as ``head``, is no error."""
    if "csv" in arguments:
        pytest.importorskip("pandas")
    log.write_text(log.read_text() * 500)
    words = arguments.replace("LOG", str(log)).split()
    if words[0] == "runs":
        words += ["--state-dir", str(state_dir)]
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:  # noqa: PTH123 - a descriptor, not a path
        told = run_cli(words, stdout=pipe, stderr=subprocess.PIPE, capture_output=False)
    assert (told.returncode, told.stderr) == (0, "")


def test_runs_list_is_a_table(state_dir, capsys):
    """Newest first, one line a run, its figures in units that people use."""
    assert main(["runs", "list", "--state-dir", str(state_dir)]) == 0
    told = capsys.readouterr().out.splitlines()
    heading, failed, good = (line.split() for line in told)
    assert heading[:2] == ["run", "started"]
    assert failed[3:6] == ["mobilenet", "gpu", "failed"]
    assert failed[6:] == ["-"] * 4
    assert good[3:] == ["resnet50", "dla0", "ok", "12.5", "0.2", "5.25", "simulated", "not_steady"]
    for filtered in (["-n", "1"], ["--workload", "mobilenet"]):
        main(["runs", "list", "--state-dir", str(state_dir), *filtered])
        assert [line.split() for line in capsys.readouterr().out.splitlines()] == [heading, failed]


def test_runs_show_takes_part_of_an_id(state_dir, capsys):
    """What the table prints of an id is enough to see all of the run, its placement included."""
    assert main(["runs", "show", "1-good", "--state-dir", str(state_dir)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["built"]["placement"]["verdict"] == "mixed"
    assert shown["built"]["placement"]["gpu_layers"] == ["a + b"]
    assert RunReport.model_validate(shown).quality == ("simulated", "not_steady")
    for wrong in ("0193", "none"):
        assert main(["runs", "show", wrong, "--state-dir", str(state_dir)]) == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert is_one_line(told.err)
        assert "tegrascope runs list" in told.err


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_runs_export_has_every_run(kind, state_dir, tmp_path, capsys):
    """All formats have both runs whole; a field that a run lacks is empty."""
    output = tmp_path / "runs.out"
    command = ["runs", "export", "-f", kind, "--state-dir", str(state_dir)]
    if kind != "jsonl":
        pandas = pytest.importorskip("pandas")
    assert main([*command, "-o", str(output)]) == 0
    if kind == "jsonl":
        runs = [json.loads(line) for line in output.read_text().splitlines()]
        assert main(command) == 0
        assert capsys.readouterr().out == output.read_text()
        assert [run["run_id"] for run in runs] == ["0193a2-bad", "0193a1-good"]
        assert "latency" not in runs[0]
        assert runs[1]["latency"]["p50_seconds"] == 0.0125
    else:
        frame = pandas.read_csv(output) if kind == "csv" else pandas.read_parquet(output)
        assert list(frame.run_id) == ["0193a2-bad", "0193a1-good"]
        assert frame["latency.p50_seconds"].isna().tolist() == [True, False]
        assert frame["quality"].iloc[1] == "simulated not_steady"
    assert main([*command, "--workload", "mobilenet", "-o", str(output)]) == 0


@pytest.mark.parametrize("action", ["list", "show x", "export"])
@pytest.mark.parametrize("content", [None, "this is no database, whatever its name says" * 99])
def test_no_run_store_is_one_line(action, content, tmp_path, capsys):
    """A directory without a store, or with something else under its name, is told."""
    if content is not None:
        (tmp_path / "tegrascope.db").write_text(content)
    assert main(["runs", *action.split(), "--state-dir", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert is_one_line(told.err)
    assert "--state-dir" in told.err


def test_empty_store_lists_no_run(tmp_path, capsys):
    """No runs yet is not a failure."""
    Store(tmp_path / "tegrascope.db").close()
    assert main(["runs", "list", "--state-dir", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_simulated_lines_are_parsed_without_remainder():
    """``simulate`` stands where tegrastats would, and a seed prints the same board again."""
    command = [
        "simulate",
        "--board",
        "orin-nx-16gb",
        "--interval",
        "1",
        "--seed",
        "7",
        "--lines",
        "3",
    ]
    told = run_cli(command)
    assert (told.returncode, told.stderr) == (0, "")
    samples = [parse_line(line) for line in told.stdout.splitlines()]
    assert len(samples) == 3
    assert not any(sample.unparsed for sample in samples)
    assert all(len(sample.dla) == 2 for sample in samples)


def test_simulated_load_that_cannot_be_read_is_one_line(tmp_path, capsys):
    """A load file that is missing, or has a mistake, is told with its line."""
    load = tmp_path / "load.csv"
    assert main(["simulate", "--lines", "1", "--load", str(load)]) == 1
    assert is_one_line(capsys.readouterr().err)
    load.write_text("at_seconds,lane,ratio\n0,gpu,2\n")
    assert main(["simulate", "--lines", "1", "--load", str(load)]) == 1
    told = capsys.readouterr().err
    assert is_one_line(told)
    assert "load.csv" in told
    assert "2" in told


def test_check_config_says_yes_or_no(tmp_path, capsys):
    """A good file is status 0; a bad one is status 3 with a line for each mistake."""
    path = tmp_path / "t.yaml"
    path.write_text(
        "workloads: [{name: a, model: 'builtin:resnet50', device: cpu, every: 60s, duration: 2m}]\n"
    )
    assert main(["check-config", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: good, 1 workload(s)\n"
    path.write_text("telemetry:\n  intervall: 1s\nhttp: {listen: nowhere}\n")
    assert main(["check-config", str(path)]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    first, second = told.err.splitlines()
    assert first.startswith(f"{path}:2: telemetry.intervall: ")
    assert "did you mean interval?" in first
    assert second.startswith(f"{path}:3: http.listen: ")
    assert main(["check-config", str(tmp_path / "none.yaml")]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_run_refuses_what_contradicts_itself(tmp_path, capsys):
    """``--demo`` has its own configuration; a file beside it is a mistake, told in one line."""
    assert main(["run", "--demo", "-c", str(tmp_path / "t.yaml")]) == 2
    assert is_one_line(capsys.readouterr().err)


def test_run_with_a_bad_file_is_one_line(tmp_path):
    """The daemon does not start on a configuration that it does not understand."""
    path = tmp_path / "t.yaml"
    path.write_text("telemetry: {source: simulatr}\n")
    for arguments in (["-c", path], ["--listen", "nowhere"]):
        told = run_cli(["run", "--state-dir", tmp_path / "state", *arguments])
        assert told.returncode == 1
        assert is_one_line(told.stderr), told.stderr


def test_csv_of_standard_output_has_a_heading(log):
    """The first line of a table names its columns as the documentation does."""
    pytest.importorskip("pandas")
    told = run_cli(["parse", "-f", "csv", log])
    heading, first, _ = csv.reader(told.stdout.splitlines())
    row = dict(zip(heading, first, strict=True))
    assert row["time"].startswith("2025-11-21")
    assert row["gpu.utilization_ratio"] == "0.99"


def test_check_config_advises_of_runs_that_are_too_short(tmp_path, capsys):
    """A good file with a run too short for its figures is good, and the reader is told."""
    path = tmp_path / "t.yaml"
    path.write_text("workloads: [{name: a, model: x, duration: 10s}]")
    assert main(["check-config", str(path)]) == 0
    assert "note: a: 10 s at an interval of 1.009 s" in capsys.readouterr().out


def test_runs_of_a_store_elsewhere(tmp_path, capsys):
    """A database with a name of its own is read by that name."""
    Store(tmp_path / "mine.db").close()
    assert main(["runs", "list", "--state-dir", str(tmp_path / "mine.db")]) == 0
    assert capsys.readouterr().out.startswith("run ")
