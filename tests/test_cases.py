"""Inputs of other programs and boards give the answers that follow from them."""

import codecs
import gzip
import json
from pathlib import Path

import pytest

from tegrascope.collectors.backends.calibration import read_cache
from tegrascope.collectors.lines.replay import LogTimes, ReplaySource
from tegrascope.collectors.models.files import facts_of
from tegrascope.workbench.cli import main
from tegrascope.workbench.inspect.judge import find_evidence

CASES = Path(__file__).parent / "cases"


def parsed(capsys, *arguments):
    """Return the records that ``tegrascope parse`` prints, and its counts."""
    assert main(["parse", *map(str, arguments)]) == 0
    output, counts = capsys.readouterr()
    return [json.loads(line) for line in output.splitlines()], counts


def correlated(capsys, log, runs, *more):
    """Return the one run that ``tegrascope correlate`` prints, and its words."""
    pytest.importorskip("pandas")
    arguments = ["correlate", "--telemetry", str(log), "--runs", str(runs), "-f", "jsonl", *more]
    assert main(arguments) == 0
    output, words = capsys.readouterr()
    (run,) = map(json.loads, output.splitlines())
    return run, words


def test_reading_below_zero_of_an_idle_thor_is_a_reading(capsys):
    (record,), counts = parsed(capsys, CASES / "thor_idle.txt")
    assert record["rails"]["VDD_GPU"]["instant_watts"] == -0.392
    assert record["rails"]["VDD_GPU"]["average_watts"] == -0.392
    assert record["unparsed"] == []
    assert "not understood" not in counts


@pytest.mark.parametrize("log", ["docker_iso_prefix.log", "same_with_epoch_prefix.log"])
@pytest.mark.parametrize("runs", ["runs_relative.csv", "runs_absolute.csv"])
def test_second_minute_takes_600_joules_whoever_wrote_the_times(log, runs, capsys):
    run, words = correlated(capsys, CASES / log, CASES / runs)
    assert run["energy"]["gross_joules"] == pytest.approx(600, rel=0.01)
    interval = run["energy"]["gross_interval"]
    assert interval["low"] <= 600 <= interval["high"]
    assert "times_assumed" not in run["quality"]
    assert "no times" not in words


def test_docker_writes_a_newline_as_two_characters(capsys):
    records, counts = parsed(capsys, CASES / "docker_json_two_lines.log")
    assert [one["rails"]["POM_5V_CPU"]["instant_watts"] for one in records] == [0.943] * 2
    assert [one["received"] for one in records] == [
        "2025-05-14T21:36:35Z",
        "2025-05-14T21:36:35.500000Z",
    ]
    assert "not understood" not in counts


def test_mark_of_an_editor_takes_no_time(capsys):
    records, _ = parsed(capsys, CASES / "utf8_bom.log")
    assert [one["time"] for one in records] == ["2025-04-11T10:36:27", "2025-04-11T10:36:28"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_log_that_powershell_wrote_is_read(encoding, compress, tmp_path, capsys):
    text = (CASES / "utf8_bom.log").read_text(encoding="utf-8-sig")
    mark = codecs.BOM_UTF16_LE if encoding.endswith("le") else codecs.BOM_UTF16_BE
    log = tmp_path / "x.log"
    log.write_bytes(compress(mark + (text + "°\n").encode(encoding)))
    records, counts = parsed(capsys, log)
    assert [one["time"][-2:] for one in records] == ["27", "28"]
    assert "3 lines: 2 records, 1 skipped (1 noise)" in counts
    pandas = pytest.importorskip("pandas")
    table = tmp_path / "x.csv"
    parsed(capsys, log, "-f", "csv", "-o", table)
    assert len(pandas.read_csv(table)) == 2


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_its_mark_is_named_with_the_remedy(encoding, tmp_path, capsys):
    log = tmp_path / "x.log"
    log.write_bytes("RAM 1/2MB\n".encode(encoding))
    assert main(["parse", str(log)]) == 1
    told = capsys.readouterr().err
    assert "UTF-16 without a mark" in told
    assert f"iconv -f {encoding.upper().replace('-LE', 'LE').replace('-BE', 'BE')}" in told


def test_runs_and_build_logs_that_powershell_wrote_are_read(tmp_path, capsys):
    runs = tmp_path / "runs.csv"
    runs.write_text((CASES / "runs_relative.csv").read_text(encoding="utf-8"), encoding="utf-16")
    run, _ = correlated(capsys, CASES / "docker_iso_prefix.log", runs)
    assert run["energy"]["gross_joules"] == pytest.approx(600, rel=0.01)
    built = tmp_path / "build.log"
    lines = (
        "[I] [TRT] [DlaLayer] {ForeignNode[conv1...relu9]}\n[I] [TRT] [GpuLayer] SOFTMAX: prob\n"
    )
    built.write_text(lines, encoding="utf-16")
    assert find_evidence(str(built), tmp_path).placement.verdict == "mixed"


def test_log_without_times_gives_no_interval_and_says_so(tmp_path, capsys):
    lines = (CASES / "docker_iso_prefix.log").read_text(encoding="utf-8").splitlines()
    log = tmp_path / "bare.log"
    log.write_text("".join(line.partition(" ")[2] + "\n" for line in lines))
    run, words = correlated(capsys, log, CASES / "runs_relative.csv")
    assert "times_assumed" in run["quality"]
    assert run["energy"]["gross_interval"] is None
    assert "no times that are understood" in words
    right, _ = correlated(capsys, log, CASES / "runs_relative.csv", "--interval", "0.5")
    assert right["energy"]["gross_joules"] == pytest.approx(600, rel=0.01)


def test_log_without_rails_says_why_there_is_no_energy(tmp_path, capsys):
    lines = (CASES / "docker_iso_prefix.log").read_text(encoding="utf-8").splitlines()
    log = tmp_path / "no_rails.log"
    log.write_text("".join(line.partition(" POM_")[0] + "\n" for line in lines))
    run, words = correlated(capsys, log, CASES / "runs_relative.csv")
    assert run["energy"] is None
    assert "no power rails" in words


def test_thor_without_its_total_says_so(tmp_path, capsys):
    record = (CASES / "thor_idle.txt").read_text(encoding="utf-8").partition(" VIN ")[0]
    log = tmp_path / "thor.log"
    log.write_text("".join(f"{1747258595 + at}.0::{record[20:]}\n" for at in range(200)))
    run, words = correlated(capsys, log, CASES / "runs_relative.csv")
    assert run["energy"]["rails"]["VDD_GPU"]["mean_watts"] == pytest.approx(-0.392)
    assert run["energy"]["gross_joules"] is None
    assert "VIN" in words


@pytest.mark.parametrize("log", ["docker_iso_prefix.log", "same_with_epoch_prefix.log"])
def test_replay_keeps_the_pace_of_the_recorder(log):
    lines = (CASES / log).read_text(encoding="utf-8").splitlines()[:20]
    assert [line.seconds for line in LogTimes().times(lines)] == [at / 2 for at in range(20)]


def test_replay_makes_a_line_of_each_record(tmp_path):
    log = tmp_path / "glued.log"
    log.write_text("05-14-2025 21:36:35 RAM 1/4MB tj@1C 05-14-2025 21:36:37 RAM 2/4MB tj@2C\n")
    lines = [line.value for line in ReplaySource(log, None).lines()]
    assert [line.strip()[-5:] for line in lines] == ["tj@1C", "tj@2C"]


def test_digits_model_of_tensorrt_gets_a_verdict(capsys):
    pytest.importorskip("onnx")
    model = CASES / "digits_like_tensorrt_sample.onnx"
    main(["inspect", str(model), "--json"])
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    placements = {node["name"]: node["placement"] for node in nodes}
    first_eight = list(placements)[:8]
    assert {placements[name] for name in first_eight} == {"dla"}
    assert first_eight[-1] == "Pooling160"
    assert placements["Times212_reshape0"] == "gpu"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_table_of_onnx_runtime_is_read(encoding, tmp_path):
    path = tmp_path / "table.txt"
    text = (CASES / "ort_calibration_table.txt").read_text(encoding="utf-8")
    path.write_text(text, encoding=encoding, newline="\r\n")
    table = read_cache(path)
    assert table.origin == "ONNX Runtime's quantiser"
    assert table.scales["data"] == pytest.approx(2.64 / 127, rel=1e-6)
    assert list(table.scales) == ["data", "conv1", "relu1"]


def test_opset_of_a_model_is_read():
    assert facts_of(CASES / "digits_like_tensorrt_sample.onnx").opset is not None
