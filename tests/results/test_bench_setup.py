"""Where a bench has its telemetry from, and what it does without."""

import argparse
from pathlib import Path

import pytest

from tegrascope.daemon.bench.settings import absolute, read_settings
from tegrascope.daemon.bench.workers import Setup
from tegrascope.daemon.cli import make_parser
from tegrascope.daemon.settings.config import Telemetry
from tegrascope.parsers.errors import UserError


def asked(*arguments: str) -> argparse.Namespace:
    return make_parser(["bench"]).parse_args(["bench", "--builtin", "mobilenet", *arguments])


def test_telemetry_is_the_source_of_the_machine(monkeypatch, tmp_path):
    program = tmp_path / "tegrastats"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = read_settings(asked())
    assert (found.telemetry.source, found.settings.telemetry) == ("tegrastats", "tegrastats")
    assert found.why_no_telemetry is None
    assert found.settings.baseline_seconds == 8.0


def test_without_telemetry_there_is_no_baseline():
    found = read_settings(asked("--telemetry", "none"))
    assert found.telemetry is None
    assert found.why_no_telemetry is not None
    assert found.settings.baseline_seconds == 0.0


def test_source_that_needs_settings_is_refused_with_the_remedy():
    with pytest.raises(UserError, match=r"replay\.path must name the log.*-c FILE"):
        read_settings(asked("--telemetry", "replay"))


def test_configuration_names_telemetry_and_board(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text(
        "telemetry: {source: simulator, interval: 500ms}\n"
        "board: {name: mine, rails: [A], total: [A], step: {default: 0.1}}\n"
    )
    found = read_settings(asked("-c", str(path)))
    assert (found.telemetry.source, found.telemetry.interval) == ("simulator", 0.5)
    assert found.rule.name == "mine"
    assert found.settings.duration_seconds == 65.0


def test_default_round_has_enough_samples():
    settings = read_settings(asked("--simulate")).settings
    assert settings.duration_seconds / (0.103 + 0.022) > 100


def test_source_that_gives_nothing_is_done_without(tmp_path):
    telemetry = Telemetry.model_validate({"tegrastats": {"command": "/no/such/tegrastats"}})
    setup = Setup(telemetry, tmp_path, first_sample_seconds=0.5)
    setup.start()
    assert "/no/such/tegrastats" in setup.problem
    assert not setup.session.environment.simulated
    setup.stop()


def test_simulated_board_tells_of_the_machine_before_the_bench(tmp_path):
    telemetry = Telemetry.model_validate({"source": "simulator", "interval": 0.05})
    setup = Setup(telemetry, tmp_path)
    setup.start()
    try:
        assert setup.problem is None
        background = setup.background(0.2)
        assert background["gpu"] < 0.1
        assert 0 <= background["cpu"] <= 1
        assert setup.session.environment.simulated
        assert setup.session.environment.board is not None
    finally:
        setup.stop()


def test_paths_of_models_are_those_of_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute("nets/a.onnx") == str(Path.cwd() / "nets/a.onnx")
    assert absolute("builtin:resnet50") == "builtin:resnet50"
