"""The command line: data on stdout, messages on stderr, exit status, and no traceback."""

import csv
import gzip
import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tegrascope.daemon.commands import find_state_dir
from tegrascope.daemon.measure.report import Distribution, Energy, RailEnergy, RunReport, Span
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.errors import PIP_INSTALL
from tegrascope.parsers.inference.placement import Built, Placement
from tegrascope.parsers.tegrastats import parse_line
from tegrascope.workbench.cli import main, make_parser

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
            phases={"steady": Span(begin_ns=0, end_ns=2 * S)},
            latency=Distribution(count=3, **{f"{name}_seconds": 0.0125 for name in figures}),
            energy=Energy(
                total_rails=("VDD_IN",),
                rails={"VDD_IN": RailEnergy(gross_joules=10.5, mean_watts=5.25)},
                gross_joules=10.5,
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


def is_one_line(printed: str) -> bool:
    return printed.startswith("tegrascope") and printed.count("\n") == 1 and printed.endswith("\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"example:\n  tegrascope {command.split()[0]}" in printed


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "COMMAND"),
        (["pars"], "invalid choice: 'pars'; did you mean parse?"),
        (["runs", "lst"], "invalid choice: 'lst'; did you mean list?"),
        (["bench", "--precision", "fp61"], "invalid choice: 'fp61'; did you mean fp16?"),
        (["zzz"], "invalid choice: 'zzz' (choose from "),
        (["runs"], "ACTION"),
        (["parse", "-f", "xml"], "invalid choice: 'xml'"),
        (["simulate", "--interval", "0"], "'0' is not a number from 1 on"),
        (["simulate", "--interval", "fast"], "'fast' is not a number from 1 on"),
        (["runs", "list", "-n", "-1"], "-n"),
        (["check-config"], "FILE"),
    ],
)
def test_misuse_is_one_line_and_status_2(arguments, expected, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert is_one_line(printed.err)
    assert expected in printed.err
    assert "--help" in printed.err


def test_parse_prints_one_record_per_line(log, capsys):
    assert main(["parse", str(log)]) == 0
    printed = capsys.readouterr()
    records = [json.loads(line) for line in printed.out.splitlines()]
    assert [record["rails"]["VDD_IN"]["instant_watts"] for record in records] == [5.139, 5.2]
    assert records[1]["unparsed"] == ["WHAT=7"]
    assert "source_line" not in records[0]
    assert printed.err.startswith("3 lines: 2 records, 1 skipped (1 ")
    assert "; 1 words not understood" in printed.err


def test_parse_keeps_lines_when_asked(log, capsys):
    main(["parse", "--keep-lines", str(log)])
    records = map(json.loads, capsys.readouterr().out.splitlines())
    assert tuple(record["source_line"] for record in records) == LINES


def test_parse_reads_gzip(log, tmp_path, capsys):
    main(["parse", str(log)])
    plain = capsys.readouterr()
    packed = tmp_path / "robot"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert main(["parse", str(packed)]) == 0
    assert capsys.readouterr() == plain


def test_damaged_gzip_gives_what_came_before(log, tmp_path, capsys):
    whole = gzip.compress(log.read_bytes() * 2000)
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    assert main(["parse", str(tmp_path / "cut.gz")]) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) > 100
    assert "cut.gz cannot be read" in printed.err


def test_unreadable_file_stops_no_other(log, tmp_path, capsys):
    assert main(["parse", str(log), str(tmp_path / "none.log"), str(tmp_path), str(log)]) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 4
    missing, directory, count = printed.err.splitlines()
    assert missing.startswith(f"tegrascope: {tmp_path / 'none.log'} is not there: ")
    assert directory.startswith(f"tegrascope: {tmp_path} is a directory: ")
    assert count.startswith("6 lines: 4 records")


def test_parse_of_standard_input(log):
    for arguments in (["parse"], ["parse", "-"]):
        printed = run_cli(arguments, input=log.read_text())
        assert printed.returncode == 0
        assert len(printed.stdout.splitlines()) == 2


def without(folder, *modules):
    """Return an environment in which these modules cannot be imported."""
    for name in modules:
        (folder / f"{name}.py").write_text("raise ImportError")
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.mark.parametrize(
    ("kind", "missing", "packages"),
    [
        ("csv", "numpy", "numpy"),
        ("parquet", "pandas", "pandas pyarrow"),
        ("parquet", "pyarrow", "pandas pyarrow"),
    ],
)
def test_tables_need_packages(log, tmp_path, kind, missing, packages):
    environment = without(tmp_path, missing)
    printed = run_cli(["parse", "-f", kind, str(log)], env=environment)
    assert printed.returncode == 1
    remedy = f"{PIP_INSTALL} {packages}"
    assert printed.stderr == f"tegrascope: {missing} is not installed: {remedy}\n"


def test_csv_needs_no_pandas(log, state_dir, tmp_path):
    runs = tmp_path / "runs.csv"
    runs.write_text("name,start,end\nfirst,0,1\n")
    environment = without(tmp_path, "pandas", "pyarrow")
    parsed = run_cli(["parse", "-f", "csv", log], env=environment)
    assert (parsed.returncode, parsed.stdout[:9]) == (0, "log,line,")
    paired = run_cli(["correlate", "--telemetry", log, "--runs", runs], env=environment)
    assert paired.stdout.splitlines()[1].startswith("first,")
    environment = without(tmp_path, "numpy")
    words = ["runs", "export", "-f", "csv", "--state-dir", state_dir]
    exported = run_cli(words, env=environment)
    assert (exported.returncode, exported.stdout[:7]) == (0, "run_id,")


def test_lines_are_kept_in_records_alone(log, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["parse", "--keep-lines", "-f", "csv", str(log)])
    assert ended.value.code == 2
    assert "use it with -f jsonl" in capsys.readouterr().err


def test_nothing_parsed_is_a_failure(tmp_path, capsys):
    (tmp_path / "other.log").write_text("hello\nworld\n")
    assert main(["parse", str(tmp_path / "other.log")]) == 1
    assert capsys.readouterr().err.startswith("2 lines: 0 records, 2 skipped")


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_formats_hold_the_same_numbers(kind, log, tmp_path):
    pandas = pytest.importorskip("pandas")
    output = tmp_path / f"out.{kind}"
    assert main(["parse", "-f", kind, "-o", str(output), str(log)]) == 0
    printed = run_cli(["parse", "-f", kind, log], text=False)
    assert printed.returncode == 0
    for source in (output, io.BytesIO(printed.stdout)):
        if kind == "jsonl":
            frame = pandas.json_normalize(list(pandas.read_json(source, lines=True).rails))
            watts = frame["VDD_IN.instant_watts"]
        else:
            frame = pandas.read_csv(source) if kind == "csv" else pandas.read_parquet(source)
            watts = frame["rails.VDD_IN.instant_watts"]
        assert list(watts) == [5.139, 5.2]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_unwritable_output_is_one_line(kind, log, tmp_path, capsys):
    if kind != "jsonl":
        pytest.importorskip("pyarrow")
    for place in (tmp_path / "none" / "out", tmp_path):
        assert main(["parse", "-f", kind, "-o", str(place), str(log)]) == 1
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith(f"tegrascope: {place}: ")
        assert last.endswith(": name a writable file with -o")
    with Path("/dev/full").open("wb") as full:
        printed = run_cli(
            ["parse", "-f", kind, log], stdout=full, stderr=subprocess.PIPE, capture_output=False
        )
    assert printed.returncode == 1
    assert "tegrascope: standard output: No space left" in printed.stderr
    assert "Traceback" not in printed.stderr


@pytest.mark.parametrize(
    "arguments", ["parse LOG", "parse -f csv LOG", "runs list", "runs export", "--help"]
)
def test_closed_pipe_ends_without_an_error(arguments, log, state_dir):
    log.write_text(log.read_text() * 500)
    words = arguments.replace("LOG", str(log)).split()
    if words[0] == "runs":
        words += ["--state-dir", str(state_dir)]
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:  # noqa: PTH123 - a descriptor, not a path
        printed = run_cli(words, stdout=pipe, stderr=subprocess.PIPE, capture_output=False)
    assert (printed.returncode, printed.stderr) == (0, "")


def cells(line):
    """Return the cells of a printed row, which two spaces divide."""
    return re.split(r" {2,}", line.strip())


def test_runs_list_is_a_table(state_dir, capsys):
    assert main(["runs", "list", "--state-dir", str(state_dir)]) == 0
    printed = capsys.readouterr().out.splitlines()
    heading, failed, good = map(cells, printed)
    assert heading[:2] == ["run", "started"]
    assert failed[2:5] == ["mobilenet", "gpu", "failed"]
    assert failed[5:] == ["–"] * 4
    assert good[2:6] == ["resnet50", "dla0", "ok", "12.5 ms"]
    assert good[6].startswith("200 mJ")
    assert good[7:] == ["5.25 W", "simulated not_steady"]
    for filtered in (["-n", "1"], ["--workload", "mobilenet"]):
        main(["runs", "list", "--state-dir", str(state_dir), *filtered])
        assert [*map(cells, capsys.readouterr().out.splitlines())] == [heading, failed]


def test_runs_list_has_energy_per_unit_where_units_are_counted(state_dir, capsys):
    assert main(["runs", "show", "1-good", "--state-dir", str(state_dir)]) == 0
    run = RunReport.model_validate_json(capsys.readouterr().out)
    energy = run.energy.model_copy(update={"joules_per_unit": 0.0625})
    changes = {"run_id": "0193b-llm", "unit": "token", "units": 160, "energy": energy}
    store = Store(state_dir / "tegrascope.db")
    store.finish(run.model_copy(update=changes))
    store.close()
    assert main(["runs", "list", "--state-dir", str(state_dir)]) == 0
    energies = [cells(line)[6] for line in capsys.readouterr().out.splitlines()[2:]]
    assert sorted(energies) == ["200 mJ (no interval)", "62.5 mJ per token (no interval)"]


def test_runs_show_takes_part_of_an_id(state_dir, capsys):
    assert main(["runs", "show", "1-good", "--state-dir", str(state_dir)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["built"]["placement"]["verdict"] == "mixed"
    assert shown["built"]["placement"]["gpu_layers"] == ["a + b"]
    assert RunReport.model_validate(shown).quality == ("simulated", "not_steady")
    for wrong, said in (("none", "there is no run none"), ("0193", "several runs begin or end")):
        assert main(["runs", "show", wrong, "--state-dir", str(state_dir)]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert is_one_line(printed.err)
        assert said in printed.err


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_runs_export_has_every_run(kind, state_dir, tmp_path, capsys):
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
@pytest.mark.parametrize("content", [None, "this is not a database" * 99])
def test_no_run_store_is_one_line(action, content, tmp_path, capsys):
    if content is not None:
        (tmp_path / "tegrascope.db").write_text(content)
    assert main(["runs", *action.split(), "--state-dir", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert is_one_line(printed.err)
    assert "--state-dir" in printed.err


def test_empty_store_lists_no_run(tmp_path, capsys):
    Store(tmp_path / "tegrascope.db").close()
    assert main(["runs", "list", "--state-dir", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_simulated_lines_are_parsed_without_remainder():
    command = [sys.executable, "-m", "tegrascope", "simulate", "--board", "orin-nx-16gb"]
    pipe = ["sh", "-c", '"$@" | head -n 3', "sh", *command, "--interval", "1", "--seed", "7"]
    printed = subprocess.run(pipe, capture_output=True, text=True, timeout=60, check=False)
    assert (printed.returncode, printed.stderr) == (0, "")
    samples = [parse_line(line) for line in printed.stdout.splitlines()]
    assert len(samples) == 3
    assert not any(sample.unparsed for sample in samples)
    assert all(len(sample.dla) == 2 for sample in samples)


def test_simulated_load_is_in_the_lines(capsys):
    command = [
        sys.executable,
        "-m",
        "tegrascope",
        "simulate",
        "--load",
        "gpu=0.5",
        "--load",
        "dla0=1",
    ]
    pipe = ["sh", "-c", '"$@" | head -n 3', "sh", *command, "--interval", "20"]
    printed = subprocess.run(pipe, capture_output=True, text=True, timeout=60, check=False)
    last = parse_line(printed.stdout.splitlines()[-1])
    assert last.gpu.utilization_ratio == 0.5
    assert last.dla[0].utilization_ratio == 1.0
    assert main(["simulate", "--load", "npu=1"]) == 2
    assert is_one_line(capsys.readouterr().err)
    for wrong in ("gpu=2", "gpu"):
        with pytest.raises(SystemExit):
            main(["simulate", "--load", wrong])
        assert "is not a load" in capsys.readouterr().err


def test_check_config_has_a_line_for_each_error(tmp_path, capsys):
    path = tmp_path / "t.yaml"
    path.write_text(
        "workloads: [{name: a, model: 'builtin:resnet50', device: cpu, every: 60s, duration: 2m}]\n"
    )
    assert main(["check-config", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: good, 1 workload(s)\n"
    path.write_text("telemetry:\n  intervall: 1s\nhttp: {listen: nowhere}\n")
    assert main(["check-config", str(path)]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    first, second = printed.err.splitlines()
    assert first.startswith(f"{path}:2: telemetry.intervall: ")
    assert "did you mean interval?" in first
    assert second.startswith(f"{path}:3: http.listen: ")
    assert main(["check-config", str(tmp_path / "none.yaml")]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_demo_with_a_configuration_is_misuse(tmp_path, capsys):
    assert main(["run", "--demo", "-c", str(tmp_path / "t.yaml")]) == 2
    assert is_one_line(capsys.readouterr().err)


def test_run_names_every_error_of_a_file(tmp_path, capsys):
    path = tmp_path / "bad.yml"
    path.write_text("tls_server_config: {cert_fil: a}\nrate_limit: 3\n")
    assert main(["run", "--web.config.file", str(path)]) == 78
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"tegrascope: {path}:1: tls_server_config.cert_fil: unknown key")
    assert second.startswith(f"tegrascope: {path}:2: rate_limit: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "robot.yaml"], "did you mean -c robot.yaml?"),
        (["run", "--cofig", "robot.yaml"], "did you mean --config?"),
        (["bench", "m.onnx", "--duratoin", "15"], "did you mean --duration?"),
        (["runs", "list", "--jsn"], "did you mean --json?"),
        (["top", "something"], "unrecognized arguments: something; see tegrascope top --help"),
        (["exec", "--workload", "w"], "no program is given"),
        (["exec", "--workload", "a b", "--", "true"], "'a b' is not a name"),
        (["exec", "--workload", "w", "--gst", "e", "--inferences", "3", "--", "true"], "give one"),
        (["bench", "m.onnx", "--duration", "0"], "'0' is not a time above 0, like 15, 15s"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_the_nearest_word(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert is_one_line(printed)
    assert said in printed
    assert f"see tegrascope {words[0]}" in printed


@pytest.mark.parametrize("words", [["run", "--listen", "80"], ["exec", "--telemetry", "none"]])
def test_a_value_that_an_option_cannot_have_ends_with_2(words, tmp_path, capsys):
    more = ["--state-dir", str(tmp_path)]
    if words[0] == "exec":
        more += ["--workload", "w", "--", "true"]
    assert main([*words, *more]) == 2
    printed = capsys.readouterr().err
    assert is_one_line(printed)
    assert "Value error" not in printed


def test_exec_silences_the_log_only_while_it_runs(tmp_path):
    root, heard = logging.getLogger(), logging.StreamHandler(io.StringIO())
    words = ["exec", "--telemetry", "none", "--state-dir", str(tmp_path), "--workload", "w"]
    assert main([*words, "--", "true"]) == 2
    root.addHandler(heard)
    logging.getLogger("tegrascope.of_a_test").warning("heard")
    root.removeHandler(heard)
    assert heard.stream.getvalue() == "heard\n"


@pytest.mark.parametrize(
    ("text", "seconds"), [("15", 15), ("15s", 15), ("500ms", 0.5), ("2m", 120)]
)
def test_times_of_options_have_the_units_of_the_configuration(text, seconds):
    words = ["bench", "m.onnx", "--duration", text, "--baseline", "0"]
    arguments = make_parser(words).parse_args(words)
    assert (arguments.duration, arguments.baseline) == (seconds, 0)


def test_parse_says_that_it_reads_the_terminal(monkeypatch, capsys):
    terminal = io.BytesIO(b"")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(terminal))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    main(["parse", "-"])
    assert "Ctrl-D ends them" in capsys.readouterr().err


def test_a_typing_error_of_compare_is_about_the_name(tmp_path, capsys):
    assert main(["compare", "a", "b", "--state-dir", str(tmp_path)]) == 1
    assert "a is neither a file nor the id of one run" in capsys.readouterr().err


def test_missing_configuration_is_not_called_an_error_in_it(capsys):
    assert main(["run", "-c", "nofile.yaml"]) == 78
    assert capsys.readouterr().err == (
        "tegrascope: nofile.yaml: No such file or directory: check the name\n"
    )


def test_run_with_a_bad_file_is_one_line(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text("telemetry: {source: simulatr}\n")
    for arguments, status in ((["-c", path], 78), (["--listen", "nowhere"], 2)):
        printed = run_cli(["run", "--state-dir", tmp_path / "state", *arguments])
        assert printed.returncode == status
        assert is_one_line(printed.stderr), printed.stderr


def test_csv_of_standard_output_has_a_heading(log):
    printed = run_cli(["parse", "-f", "csv", log])
    heading, first, _ = csv.reader(printed.stdout.splitlines())
    row = dict(zip(heading, first, strict=True))
    assert row["time"].startswith("2025-11-21")
    assert row["gpu.utilization_ratio"] == "0.99"


def test_check_config_notes_runs_that_are_too_short(tmp_path, capsys):
    path = tmp_path / "t.yaml"
    path.write_text("workloads: [{name: a, model: x, duration: 10s}]")
    assert main(["check-config", str(path)]) == 0
    assert "note: a: 10 s at an interval of 1.009 s" in capsys.readouterr().out


def test_check_config_notes_models_that_are_not_there(tmp_path, capsys):
    path, model = tmp_path / "t.yaml", tmp_path / "net.onnx"
    path.write_text(f"workloads: [{{name: a, model: {model}, duration: 2m}}]")
    assert main(["check-config", str(path)]) == 0
    note = f"note: a: there is no {model} that this user can read\n"
    assert capsys.readouterr().out == f"{path}: good, 1 workload(s)\n{note}"
    model.touch()
    assert main(["check-config", str(path)]) == 0
    assert "note: " not in capsys.readouterr().out


def test_check_config_notes_what_the_machine_does_not_have(tmp_path, capsys):
    """Other users and machines may have it, so the file is good."""
    path = tmp_path / "t.yaml"
    path.write_text(
        "telemetry: {tegrastats: {command: [/bin/none]}, dla_trace: {command: [/bin/none, x]},"
        " gpu_trace: {command: [/bin/none]}}\n"
        "workloads:\n"
        "- {name: a, model: 'builtin:resnet51', duration: 2m}\n"
        "- {name: b, command: [/bin/nosuch, x], device: gpu, duration: 2m}\n"
        "- {name: c, command: [sh, x], device: gpu, duration: 2m}\n"
    )
    assert main(["check-config", str(path)]) == 0
    notes = capsys.readouterr().out.splitlines()[1:]
    assert notes[0].startswith("note: a: there is no builtin:resnet51; use builtin:mobilenet, ")
    assert notes[1:] == [
        "note: b: there is no program /bin/nosuch that this user can run",
        "note: telemetry.tegrastats, telemetry.dla_trace, telemetry.gpu_trace: there is no program"
        " /bin/none that this user can run",
    ]


def test_equal_notes_are_one_line(tmp_path, capsys):
    path = tmp_path / "t.yaml"
    path.write_text(
        "workloads:\n"
        + "".join(f"- {{name: w{n}, model: /no/x.onnx, duration: 20s}}\n" for n in range(40))
    )
    assert main(["check-config", str(path)]) == 0
    _, short, missing = capsys.readouterr().out.splitlines()
    names = "note: w0, w1, w2, w3, w4 and 35 more: "
    assert short.startswith(f"{names}20 s at an interval")
    assert missing == f"{names}there is no /no/x.onnx that this user can read"


def test_state_of_the_service_is_found_where_ours_has_none(tmp_path):
    own, installed = tmp_path / "own", tmp_path / "installed"
    assert find_state_dir("x", own, installed) == own
    installed.mkdir()
    assert find_state_dir("x", own, installed) == installed
    own.mkdir()
    (own / "x").touch()
    assert find_state_dir("x", own, installed) == own


@pytest.mark.parametrize("words", ["runs list", "runs export", "engines list", "engines prune"])
def test_help_names_the_state_directory_that_is_searched(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    for name in ("tegrascope.db", "engines"):
        (tmp_path / name).touch()
    with pytest.raises(SystemExit):
        main([*words.split(), "--help"])
    assert str(tmp_path) in "".join(capsys.readouterr().out.split())


def test_runs_of_a_store_elsewhere(tmp_path, capsys):
    Store(tmp_path / "mine.db").close()
    assert main(["runs", "list", "--state-dir", str(tmp_path / "mine.db")]) == 0
    assert capsys.readouterr().out.startswith("run ")


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "--json", "a\udcff.onnx"),
        ("parse", "good.log", "a\udcff.log"),
        ("exec", "--workload", "job", "--json", "\udced\udca0\udc80", "--", "true"),
        ("top", "--url", "http://a\udcff"),
        ("check-config", "a\udcff.yaml"),
    ],
)
def test_name_that_is_not_utf_8_is_one_line(words, capsys):
    """Python has half a character for each of its bytes, and no document can hold that."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert not out
    (line,) = err.splitlines()
    assert "is not UTF-8: give another name, or rename the file" in line
