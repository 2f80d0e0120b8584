"""Settings: durations, defaults, and errors that name their line."""

import os
import re
import sys
from pathlib import Path

import pytest

from tegrascope.collectors.base import SYSTEM_CLOCK
from tegrascope.daemon.measure.energy_report import timing_of
from tegrascope.daemon.session.session import Job, Session, make_order
from tegrascope.daemon.session.telemetry import environment_of, open_companions
from tegrascope.daemon.settings.config import Config, Workload, split_listen
from tegrascope.daemon.settings.file import ConfigError, load_config, read_settings
from tegrascope.parsers.values import read_duration
from tegrascope.workbench.cli import main

from ..fakes.board_tree import write_board


def parse_config(text: str, path: Path) -> Config:
    return read_settings(text, path, Config).settings


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, Path("t.yaml"))
    return list(caught.value.problems)


def test_empty_file_is_the_default():
    assert parse_config("", Path("t.yaml")) == Config()
    assert parse_config("# nothing\n", Path("t.yaml")) == Config()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("1.5m", 90), ("2h", 7200), ("7d", 604800), ("12", 12), (3, 3)],
)
def test_durations(text, seconds):
    assert read_duration(text) == seconds


def test_unknown_key_is_reported_with_its_line_and_a_suggestion():
    text = "telemetry:\n  source: simulator\n  intervall: 1s\n"
    assert problems(text) == ["t.yaml:3: telemetry.intervall: unknown key; did you mean interval?"]


def test_a_key_of_other_schedulers_leads_to_ours():
    """``jitter`` resembles ``interval`` more than ``every`` does."""
    text = "workloads:\n- {name: a, model: x, interval: 5m}\n"
    assert problems(text) == ["t.yaml:2: workloads.0.interval: unknown key; did you mean every?"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("telemetry: {interval: 100}", "must be at most 60 s, not 100 s; did you mean 100ms?"),
        ("telemetry: {interval: 2m}", "must be at most 60 s, not 120 s"),
        ("workloads: [{name: a, model: x, jitter: -1}]", "must be at least 0 s, not -1 s"),
        ("workloads: [{name: a, model: x, batch: 0}]", "greater than 0, not 0"),
    ],
)
def test_a_time_out_of_bounds_has_its_unit(text, said):
    (problem,) = problems(text)
    assert said in problem


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("interval: 5s", "otlp.endpoint: is required"),
        ("endpoint: 127.0.0.1:4318", "an address is like http://127.0.0.1:4318"),
        ("endpoint: 'grpc://robot:4317'", "an address is like http://127.0.0.1:4318"),
        ("endpoint: 'http://robot:4318/v1/metrics'", "leave out /v1/metrics"),
        ("endpoint: 'https://me:pw@robot'", "write the header Authorization to headers_file"),
        ("endpoint: 'http://robot:99999'", "otlp.endpoint"),
        ("endpoint: 'http://robot', interval: 10ms", "otlp.interval"),
        ("endpoint: 'http://robot', send: [logs]", "must be 'metrics' or 'runs'"),
        ("endpoint: 'https://robot', key_file: a.key", "key_file goes with cert_file"),
        ("endpoint: 'https://robot', token: abc", "unknown key"),
    ],
)
def test_otlp_settings_that_cannot_work_are_refused(keys, words):
    (problem,) = problems(f"otlp: {{{keys}}}\n")
    assert words in problem
    assert "pw" not in problem


def test_missing_packages_of_otlp_are_a_note(tmp_path, monkeypatch, capsys):
    path = tmp_path / "t.yaml"
    path.write_text("otlp: {endpoint: 'http://127.0.0.1:4318'}\n")
    assert main(["check-config", str(path)]) == 0
    assert "note: otlp" not in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "opentelemetry", None)  # as if it were not installed
    assert main(["check-config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "pip install opentelemetry-exporter-otlp-proto-common opentelemetry-sdk" in out


def test_every_error_is_found_in_the_order_of_the_file():
    text = (
        "workloads:\n  - name: a\n    model: x.onnx\n    devise: gpu\n    every: 5x\n"
        "  - name: b\n    model: y.onnx\n    device: dla7\nhttp: {listen: nowhere}\n"
    )
    found = problems(text)
    assert [line.split(":")[1] for line in found] == ["4", "5", "8", "9"]
    assert "did you mean device?" in found[0]
    assert "500ms, 30s" in found[1]
    assert "'dla7'" in found[2]
    assert "HOST:PORT" in found[3]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("telemetry: [", 1, "expected"),
        ("- a\n- b\n", 1, "mapping"),
        ("store:\n  path: [\n\n", 4, "expected the node content"),
        ("http:\n  listen: 1.2.3.4:1\n  listen: 1.2.3.4:2\n", 3, "given twice"),
        ('workloads:\n- name: "\\ud800"\n', 2, "workloads.0.name: an escape is half a char"),
        ('otlp:\n  attributes: {"\\udfff": a}\n', 2, "an escape is half a character"),
        ('\n"\\ud83d\\ude00"', 2, "an escape is half a character"),
        ("telemetry: {source: replay}\n", 1, "replay.path"),
        ("telemetry: {source: nvml, nvml: {gpu: first}}\n", 1, "nvidia-smi -L"),
        ("workloads:\n- {name: a, model: x, every: 1s, cron: '* * * * *'}\n", 2, "not both"),
        ("workloads:\n- {name: a, model: x, cron: '61 * * * *'}\n", 2, "five fields"),
        ("workloads:\n- {name: a, model: x}\n- {name: a, model: y}\n", 1, "two workloads"),
        ("workloads:\n- {name: 'a b', model: x}\n", 2, "'a b'"),
        ("workloads:\n- {model: x}\n", 2, "required"),
        ("workloads:\n- {name: a}\n", 2, "give one of model"),
        ("workloads:\n- {name: a, model: x, command: y}\n", 2, "give one of model"),
        (
            "workloads:\n- {name: a, backend: command, model: x}\n",
            2,
            "goes with command, not with model",
        ),
        (
            "workloads:\n- {name: a, backend: trtexec, command: x}\n",
            2,
            "goes with model, not with c",
        ),
        ("workloads:\n- {name: a, command: []}\n", 2, "must have 1 item(s) or more"),
        ("workloads:\n- {name: a, model: x, calibration: c}\n", 2, "is for int8: set precision"),
        (
            "workloads:\n- {name: a, model: x, calibration: c, precision: int8, device: cpu}\n",
            2,
            "is for TensorRT, not for onnxruntime",
        ),
        (
            "workloads:\n- name: a\n  model: x\n  preprocess: {layout: CHW}\n",
            4,
            "preprocess.layout: must be 'NCHW' or 'NHWC', not 'CHW'",
        ),
        ("workloads: 3\n", 1, "workloads: must be a list, not 3"),
        ("workloads:\n- {name: a/b, model: x}\n", 2, "use up to 63 letters, digits, _ . and -"),
        ("workloads:\n- {name: a, model: x, batch: many}\n", 2, "must be a whole number"),
        ("http: {hosts: robot}\n", 1, "http.hosts: must be a list"),
        ("store: {path: 3}\n", 1, "store.path: must be a path"),
        ('workloads:\n- {name: a, command: "x \\0 y"}\n', 2, "has no NUL character"),
        ('workloads:\n- {name: a, command: ["x", "\\0"]}\n', 2, "has no NUL character"),
        ("http: {listen: 'evil host:80'}\n", 1, "HOST:PORT"),
        ("workloads:\n- {name: a, model: x, device: external}\n", 2, "not of a back-end of ours"),
        ("workloads:\n- {name: a, command: x, deadline: 33ms}\n", 2, "so it has no deadline"),
        ("workloads:\n- {name: a, model: x, deadline: 0s}\n", 2, "deadline"),
        ("workloads:\n- {name: a, scrape: {url: 'ftp://x'}}\n", 2, "is not an address: use http"),
        (
            "workloads:\n- {name: a, server: {url: 'http:///v1', model: m}}\n",
            2,
            "is not an address",
        ),
        ("workloads:\n- {name: a, scrape: {url: 'http://x:0/'}}\n", 2, "is not an address"),
        ("workloads:\n- {name: a, scrape: {url: 'http://x:70000/'}}\n", 2, "Port out of range"),
        ("workloads:\n- {name: a, scrape: {url: 'http://[x/'}}\n", 2, "Invalid IPv6 URL"),
        ("workloads:\n- {name: a, scrape: {url: 'http://x/', metric: a}}\n", 2, "like unit: token"),
        ("workloads:\n- {name: a, unit: a, scrape: {url: 'http://x/', metric: [a]}}\n", 2, "text"),
        (
            "workloads:\n- {name: a, scrape: {url: 'http://x/'}, count: 3}\n",
            2,
            "count cannot be set with scrape",
        ),
        ("workloads:\n- {name: a, backend: counter, model: x}\n", 2, "goes with scrape"),
        (
            "workloads:\n- {name: a, server: {url: 'http://x/', model: m}, model: x}\n",
            2,
            "give one of",
        ),
        ("workloads:\n- {name: a, backend: window, every: 5m}\n", 2, "every: an application"),
        ("workloads:\n- {name: a, backend: window, model: x}\n", 2, "model: an application"),
        ("workloads:\n- {name: a, backend: window, timeout: 2h}\n", 2, "at most 1h"),
    ],
)
def test_errors_name_line_and_remedy(text, line, words):
    (found,) = problems(text)
    assert found.startswith(f"t.yaml:{line}: ")
    assert words in found


def test_user_and_password_of_an_address_are_refused_and_not_repeated():
    (found,) = problems("workloads:\n- {name: a, server: {model: m, url: 'htp://me:secret@x'}}\n")
    assert "put a key into api_key_file" in found
    assert "secret" not in found


def test_counter_of_a_server_measures_no_work_of_ours():
    text = "workloads:\n- {name: a, scrape: {url: 'http://x/metrics'}}\n"
    (found,) = read_settings(text, Path("t.yaml"), Config).settings.workloads
    assert (found.backend_in_force, found.device, found.unit) == ("counter", "external", "token")
    assert (found.warm_up, found.baseline, found.steady_seconds) == (0.0, 0.0, 10.0)
    text = "workloads:\n- {name: a, server: {url: 'http://x/v1', model: org/small}}\n"
    (found,) = read_settings(text, Path("t.yaml"), Config).settings.workloads
    assert (found.backend_in_force, found.device, found.unit) == ("openai", "gpu", "token")
    assert found.labels["model"] == "small"


@pytest.mark.parametrize(
    "text",
    [
        "telemetry: {replay: {speed: fast}}\n",
        "telemetry: {nvml: {gpu: {a: 1}}}\n",
        "limits: {dla_busy_ratio: {gpu: 0.5}}\n",
        "workloads: [{name: [1], model: {a: 1}, command: 3, every: [1], cuda_graph: x}]\n",
    ],
)
def test_errors_have_no_words_of_the_library(text):
    for found in problems(text):
        where = found.split(": ")[1]
        assert all(part.isidentifier() or part.isdigit() for part in where.split("."))
        for word in ("Input", "valid", "string", "tuple", "dict", "integer", "pattern"):
            assert word not in found


def test_document_that_contains_itself_is_one_line():
    (found,) = problems("telemetry: &a [*a]\n")
    assert found.startswith("t.yaml: cannot be read: ")


WORKLOAD = "workloads: [{name: w, model: x.onnx, device: cpu, %s}]\n"


@pytest.mark.parametrize(
    "value", [".inf", ".nan", "200000d", "9999999d", "1.0e+300", f"'{'9' * 400}'"]
)
@pytest.mark.parametrize(
    "text",
    [
        "store: {samples_retention: %s}\n",
        "store: {runs_retention: %s}\n",
        *(
            WORKLOAD % f"{key}: %s"
            for key in ("every", "offset", "timeout", "duration", "warm_up", "baseline", "jitter")
        ),
    ],
)
def test_durations_are_finite_and_bounded(text, value):
    (problem,) = problems(text % value)
    assert problem.startswith("t.yaml:1: ")
    assert problem.endswith(": a duration is at most 36500d, which is 100 years")


def test_longest_durations_are_accepted():
    config = parse_config("store: {samples_retention: 36500d, runs_retention: 36500d}", Path("t"))
    assert config.store.runs_retention == 36500 * 86400


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WORKLOAD % f"batch: 1{'0' * 30}", "less than or equal to 65536"),
        (WORKLOAD % f"threads: 0x{'f' * 4000}", "less than or equal to 1024, not this number"),
        (WORKLOAD % "streams: 1000000", "less than or equal to 1024"),
        (WORKLOAD % "count: 9999999999999", "less than or equal to 1000000000"),
        (WORKLOAD % "process: {cpus: [99999999999]}", "less than or equal to 8191"),
        ("limits: {power_watts: .inf}\n", "finite number"),
        ("board: {name: b, rails: [A], total: [A], step: {default: .inf}}\n", "finite number"),
    ],
)
def test_sizes_are_finite_and_bounded(text, words):
    (problem,) = problems(text)
    assert words in problem


def bomb(entry: str) -> str:
    """Return a document of ten lines whose aliases stand for 9^9 values."""
    lines = [f"{name}: &{name} {{}}" for name in "bcdefghij"]
    before = "abcdefghi"
    return "a: &a {x: 1}\n" + "\n".join(
        line.replace("{}", entry.format(", ".join([f"*{old}"] * 9)))
        for line, old in zip(lines, before, strict=True)
    )


@pytest.mark.parametrize("entry", ["[{}]", "{{<<: [{}]}}"], ids=["aliases", "merges"])
def test_aliases_that_multiply_are_refused(entry):
    (problem,) = problems(bomb(entry))
    assert "over 50000 values; write fewer, or fewer aliases" in problem


def test_only_regular_files_of_a_limited_size_are_read(tmp_path):
    pipe, large = tmp_path / "pipe.yaml", tmp_path / "large.yaml"
    os.mkfifo(pipe)
    large.write_text("#" * 300_000)
    found = []
    for path in (pipe, Path("/dev/zero"), large, tmp_path):
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        (problem,) = caught.value.problems
        found.append(problem.partition(": ")[2])
    assert found == [
        *["is not a regular file; name a YAML file"] * 2,
        "is above 256 KiB; name a file of settings",
        "Is a directory: name another",
    ]


def test_many_errors_are_counted():
    found = problems("".join(f"key{number}: 1\n" for number in range(1000)))
    assert len(found) == 51
    assert found[-1] == "t.yaml: and 950 more errors"


@pytest.mark.parametrize(
    "text",
    [
        "telemetry: {{interval: '{}x'}}",
        "workloads: [{{name: a, cron: '{}'}}]",
        "? '{}'",
        "['{}']",
    ],
)
@pytest.mark.parametrize("part", ["1", "1:", "0-59,"])
def test_long_values_are_refused_before_they_are_read(text, part):
    [problem] = problems(text.format(part * 20_000))
    assert problem == "t.yaml:1: a value of over 4096 characters; write a shorter one"


@pytest.mark.parametrize(
    "value",
    [
        "2020-13-45",
        "1:" * 1000 + "1.5",
        "0x_",
        "!!bool 3",
        "!!int ''",
        "!!float x",
        "!!timestamp x",
    ],
)
def test_date_number_or_tag_that_cannot_be_is_one_line(value):
    (problem,) = problems(f"store: {{path: {value}}}\n")
    assert problem.startswith("t.yaml: cannot be read: a date, a number or a tag is not valid (")


def test_missing_file_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize("unit", ["Token", "2fast", "a-b", "t" * 33, "inferences"])
def test_name_of_a_unit_that_no_label_should_have_is_refused(unit):
    text = "workloads:\n  - {name: a, command: /bin/true, unit: UNIT}\n".replace("UNIT", unit)
    (problem,) = problems(text)
    assert problem.startswith("t.yaml:2: workloads.0.unit:")
    assert "is not a unit: use up to 32 small letters" in problem


def test_demo_configuration_is_good():
    from importlib.resources import files

    text = (files("tegrascope.daemon.commands") / "demo.yaml").read_text(encoding="utf-8")
    config = parse_config(text, Path("demo.yaml"))
    assert {workload.device for workload in config.workloads} == {"gpu", "dla0", "cpu"}
    assert config.advice() == []


@pytest.mark.parametrize(
    ("telemetry", "workload", "words"),
    [
        (
            "tegrastats",
            "device: gpu",
            "computes nothing, and goes with telemetry.source: simulator",
        ),
        ("simulator", "device: cpu", "simulated runs on gpu, dla0, dla1, not on cpu"),
        ("simulator", "device: gpu, batch: 7", "no pace of resnet50 is known on gpu in any precis"),
        ("simulator", "device: gpu, streams: 2", "the paces are those of one inference at a time"),
    ],
)
def test_accelerator_that_cannot_be_simulated_is_refused(telemetry, workload, words):
    text = (
        f"telemetry: {{source: {telemetry}}}\n"
        f"workloads:\n- {{name: a, model: resnet50, backend: simulated, {workload}}}\n"
    )
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse_config(text, Path("t.yaml"))


def test_board_without_paces_is_refused():
    text = (
        "telemetry: {source: simulator, simulator: {board: orin-nx-16gb}}\n"
        "workloads:\n- {name: a, model: resnet50, backend: simulated, device: gpu}\n"
    )
    with pytest.raises(ConfigError, match="a: paces are known of agx-orin-64gb only"):
        parse_config(text, Path("t.yaml"))


def test_defaults_follow_the_device():
    assert Workload(name="a", model="x", device="dla0").backend_in_force == "tensorrt"
    assert Workload(name="a", model="x", device="cpu").backend_in_force == "onnxruntime"
    assert Workload(name="a", model="x").steady_seconds == 10.0
    assert Workload(name="a", model="x", count=5).steady_seconds is None


def test_command_and_window_stand_in_place_of_a_model():
    text = (
        "workloads:\n- {name: a, command: infer --batch 'a b', device: dla0}\n"
        "- {name: b, backend: window, device: external, batch: 4, timeout: 1m,"
        " deadline: 33ms}\n"
    )
    program, window = parse_config(text, Path("t.yaml")).workloads
    assert (program.backend_in_force, program.command) == ("command", ("infer", "--batch", "a b"))
    assert (window.backend_in_force, window.timeout_seconds) == ("window", 60)
    assert window.is_window
    assert Workload(name="c", backend="window").timeout_seconds == 600


def test_short_runs_are_advised_against():
    text = "telemetry: {interval: %s}\nworkloads: [{name: a, model: x, duration: %s}]"
    (found,) = parse_config(text % ("1009ms", "10s"), Path("t.yaml")).advice()
    assert found.startswith("a: 10 s at an interval of 1.009 s")
    assert "duration: 111s" in found
    assert parse_config(text % ("1009ms", "2m"), Path("t.yaml")).advice() == []
    assert parse_config(text % ("103ms", "15s"), Path("t.yaml")).advice() == []


@pytest.mark.parametrize(
    ("interval", "baseline", "advised"),
    [("103ms", "1s", None), ("103ms", "0.8s", "baseline: 2s"), ("1009ms", "8s", None),
     ("1009ms", "5s", "baseline: 8s"), ("1009ms", "0s", None)],
)  # fmt: skip
def test_idle_phases_too_short_for_net_energy_are_advised_against(interval, baseline, advised):
    text = "telemetry: {interval: %s}\nworkloads: [{name: a, model: x, duration: 2m, baseline: %s}]"
    found = parse_config(text % (interval, baseline), Path("t.yaml")).advice()
    assert len(found) == (advised is not None)
    if advised is not None:
        assert "too short for net energy" in found[0]
        assert found[0].endswith(advised)


def test_advice_names_the_interval_of_the_service(monkeypatch):
    text = "telemetry: {interval: 103ms}\nworkloads: [{name: a, model: x, duration: 15s}]"
    config = parse_config(text, Path("t.yaml"))
    assert config.advice() == []
    monkeypatch.setenv("TEGRASTATS_INTERVAL_MS", "1009")  # as in the unit
    (found,) = config.advice()
    assert found.startswith("a: 15 s at an interval of 1.009 s")
    assert "TEGRASTATS_INTERVAL_MS=103 in /etc/default/tegrascope" in found
    nvml = parse_config("telemetry: {source: nvml}\nworkloads: [{name: a, model: x}]", Path("t"))
    assert "TEGRASTATS" not in nvml.advice()[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{power_watts: 0}", "greater than 0"),
        ("{dla_busy_ratio: {dla0: 1.5}}", "less than or equal to 1, not 1.5"),
        ("{dla_busy_ratio: {gpu: 0.5}}", "dla0"),
    ],
)
def test_limits_that_cannot_be_are_refused(text, words):
    (found,) = problems(f"limits: {text}\n")
    assert words in found


def test_listen_takes_ipv6():
    assert split_listen("[::1]:80") == ("::1", 80)
    for wrong in ("80", ":80", "host:", "host:99999", "host:٣"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            split_listen(wrong)


@pytest.mark.parametrize("gpu", [0, 3, "GPU-7c1b0a52-6f3e-11ee-b962-0242ac120002"])
def test_gpu_is_an_index_or_a_uuid(gpu):
    config = parse_config(f"telemetry: {{source: nvml, nvml: {{gpu: {gpu}}}}}", Path("t.yaml"))
    assert config.telemetry.nvml.gpu == gpu
    assert config.telemetry.interval == 1.009


def test_dla_trace_is_off_without_command_and_socket():
    assert open_companions(Config().telemetry, SYSTEM_CLOCK) == []
    text = "telemetry: {source: %s, dla_trace: {command: sudo -n reader}}"
    here = parse_config(text % "tegrastats", Path("t.yaml")).telemetry
    (companion,) = open_companions(here, SYSTEM_CLOCK)
    assert (companion.name, companion.problem) == ("ftrace", None)
    assert here.dla_trace.command == ("sudo", "-n", "reader")
    # Lines of another machine are not joined with the trace of this one.
    played = parse_config(text % "simulator", Path("t.yaml")).telemetry
    assert open_companions(played, SYSTEM_CLOCK) == []
    (found,) = problems("telemetry: {dla_trace: {command: a, socket: /b}}\n")
    assert "give command or socket, not both" in found


def test_gpu_trace_is_off_without_command_and_socket():
    assert not Config().telemetry.gpu_trace.is_asked_for
    text = "telemetry: {source: %s, gpu_trace: {socket: /run/tegrascope/gpu-trace.sock}}"
    here = parse_config(text % "tegrastats", Path("t.yaml")).telemetry
    (companion,) = open_companions(here, SYSTEM_CLOCK)
    assert (companion.name, companion.problem) == ("ctxsw", None)
    played = parse_config(text % "simulator", Path("t.yaml")).telemetry
    assert open_companions(played, SYSTEM_CLOCK) == []


@pytest.mark.parametrize("value", ["auto", True, False, "/", "/srv/board"])
def test_sysfs_is_a_switch_or_a_root(value):
    telemetry = Config.model_validate({"telemetry": {"sysfs": value}}).telemetry
    assert telemetry.sysfs == value


@pytest.mark.parametrize("value", ["off-and-on", "relative/root", "3", "[/]"])
def test_sysfs_of_another_form_is_refused(value):
    (found,) = problems(f"telemetry:\n  sysfs: {value}\n")
    assert found.startswith("t.yaml:2: telemetry.sysfs: auto, true, false, or a directory")


@pytest.mark.parametrize("value", ["0s", "61s", "soon"])
def test_averaging_is_a_time_that_a_sensor_may_have(value):
    (found,) = problems(f"telemetry:\n  averaging: {value}\n")
    assert found.startswith("t.yaml:2: telemetry.averaging: ")


def test_stated_averaging_reaches_the_edges_of_a_window(tmp_path):
    """The longer counts of what is stated and what the kernel's files have, here 7 ms."""

    def settling(telemetry: dict[str, object]) -> float:
        settings = Config.model_validate({"telemetry": telemetry}).telemetry
        environment = environment_of(settings, board=None, simulated=False)
        return timing_of(environment).settling

    write_board(tmp_path)
    assert settling({"sysfs": False}) == 0
    assert settling({"sysfs": False, "averaging": "420ms"}) == pytest.approx(5 * 0.42)
    assert settling({"sysfs": str(tmp_path), "averaging": "420ms"}) == pytest.approx(5 * 0.42)
    assert settling({"sysfs": str(tmp_path), "averaging": "5ms"}) == pytest.approx(5 * 0.007)


def test_labels_name_the_model_without_its_path():
    text = "workloads: [{name: a, model: %s/net.onnx, precision: int8, batch: 4}]"
    (here,), (there,) = (
        parse_config(text % folder, Path("c.yaml")).workloads for folder in ("/opt/a", "/srv/b/c")
    )
    labels = {"model": "net.onnx", "backend": "tensorrt", "precision": "int8", "batch": "4"}
    assert here.labels == there.labels == labels
    (window,) = parse_config(
        "workloads: [{name: w, backend: window, device: dla0}]", Path("c.yaml")
    ).workloads
    assert window.labels == {"backend": "window", "batch": "1"}


def test_keys_with_escapes_do_not_reach_the_terminal(tmp_path, capsys):
    """An unknown key is shown without its escapes, and a long value is cut."""
    path = tmp_path / "evil.yaml"
    path.write_text('"\\e[31mkey": 1\nworkloads: "' + "a" * 4000 + '"\n', encoding="utf-8")
    assert main(["check-config", str(path)]) != 0
    told = capsys.readouterr()
    assert "\\x1b[31mkey" in told.err
    assert "\x1b" not in told.out + told.err
    assert len(told.err) < 2000


@pytest.mark.parametrize(
    ("interval", "duration", "advice"),
    [
        ("103ms", "11s", None),
        ("103ms", "10.1s", "duration: 12s"),
        ("103ms", "10.5s", "duration: 12s"),
        ("103ms", "10.9s", None),
        ("1009ms", "60s", "duration: 111s; or 15s, and telemetry.interval: 103ms"),
    ],
)
def test_advice_is_given_for_what_is_too_short_and_names_nothing_that_is_set(
    interval, duration, advice
):
    text = (
        f"telemetry: {{interval: {interval}, tegrastats: {{socket: null}}}}\n"
        f"workloads: [{{name: w, model: m.onnx, duration: {duration}}}]\n"
    )
    found = parse_config(text, Path("t")).advice()
    assert [one.partition("energy per inference: ")[2] for one in found] == (
        [] if advice is None else [advice]
    )


def test_layers_are_held_by_tensorrt_alone():
    text = "workloads: [{{name: w, model: m.onnx, device: {}, layer_precisions: {}}}]\n"
    asked = '{Split_36: fp16, "model.22*": fp32}'
    [workload] = parse_config(text.format("gpu", asked), Path("t")).workloads
    assert workload.layer_precisions == {"Split_36": "fp16", "model.22*": "fp32"}
    assert workload.precision_constraints == "obey"
    with pytest.raises(ConfigError, match="layer_precisions are for TensorRT"):
        parse_config(text.format("cpu", asked), Path("t"))
    for wrong in ("{a: fp8}", '{"": fp16}', str(dict.fromkeys(range(1025), "fp16"))):
        with pytest.raises(ConfigError, match="layer_precisions"):
            parse_config(text.format("gpu", wrong), Path("t"))


@pytest.mark.parametrize("device", ["dla0", "cpu", "gpu"])
def test_head_of_a_workload_goes_into_its_order(device):
    text = f"workloads: [{{name: w, model: b.onnx, head: h.onnx, device: {device}}}]\n"
    [workload] = parse_config(text, Path("t")).workloads
    other = "cpu" if device == "cpu" else "gpu"
    assert workload.accelerator == f"{device}+{other}"
    order = make_order(Job(workload), Session())
    assert (order.model, order.head, order.device) == ("b.onnx", "h.onnx", device)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("model: b.onnx, backend: trtexec", "head: trtexec runs one engine per inference: use bac"),
        ("model: b.onnx, engine_capability: dla_standalone, device: dla0", "head: cudla runs one"),
        ("command: [infer]", "head: command runs one engine"),
        ("model: resnet50, backend: simulated", "head: simulated runs one engine"),
        ("backend: window", "head: an application that marks its own windows"),
    ],
)
def test_head_for_a_back_end_of_one_engine_is_refused(keys, words):
    with pytest.raises(ConfigError, match=words):
        parse_config(f"workloads: [{{name: w, head: h.onnx, {keys}}}]\n", Path("t"))


@pytest.mark.parametrize(
    "keys",
    [
        "model: m.onnx, device: cpu",
        "model: m.onnx, device: gpu, backend: trtexec",
        "model: m.onnx, device: dla0, engine_capability: dla_standalone",
        "model: resnet50, device: gpu, backend: simulated",
        "command: [infer]",
        "server: {url: 'http://127.0.0.1:1/v1', model: m}",
    ],
)
def test_memory_for_a_back_end_with_buffers_of_its_own_is_refused(keys):
    with pytest.raises(ConfigError, match="memory is for the back-end tensorrt"):
        parse_config(f"workloads: [{{name: w, memory: copy, {keys}}}]\n", Path("t"))


def test_memory_of_a_workload_goes_into_its_order_and_its_labels():
    text = "workloads: [{name: w, model: m.onnx, device: gpu, memory: mapped}]\n"
    [workload] = parse_config(text, Path("t")).workloads
    assert make_order(Job(workload), Session()).memory == "mapped"
    assert workload.labels["memory"] == "mapped"
    with pytest.raises(ConfigError, match="memory is for inputs and outputs that are transferred"):
        parse_config(text.replace("mapped", "mapped, transfers: false"), Path("t"))
    with pytest.raises(ConfigError, match="memory"):
        parse_config(text.replace("mapped", "pinned"), Path("t"))


def test_plug_ins_are_for_tensorrt_alone():
    text = "workloads: [{{name: w, model: m.onnx, device: {}, plugins: [/a.so]}}]\n"
    assert parse_config(text.format("gpu"), Path("t")).workloads[0].plugins == ("/a.so",)
    with pytest.raises(ConfigError, match="plugins are for TensorRT"):
        parse_config(text.format("cpu"), Path("t"))


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ("[1, 3, 8]", None),
        ("{min: [1, 3], opt: [2, 3], max: [4, 3]}", None),
        ("{min: [1, 3], opt: [2, 3]}", "give all of min, opt and max, or none"),
        ("{min: [1, 3], opt: [5, 3], max: [4, 3]}", "5x3 is not between min and max"),
        ("{shape: [9, 3], min: [1, 3], opt: [2, 3], max: [4, 3]}", "9x3 is not between"),
        ("{min: [1, 3], opt: [2, 3, 1], max: [4, 3]}", "differ in their number of dimensions"),
        ("[0, 3]", "greater than 0"),
    ],
)
def test_shapes_of_inputs_are_checked(shape, problem):
    text = f"workloads: [{{name: w, model: m.onnx, shapes: {{x: {shape}}}}}]\n"
    if problem is None:
        (one,) = parse_config(text, Path("t")).workloads
        assert one.shapes["x"].shape in ((1, 3, 8), (2, 3))
        return
    with pytest.raises(ConfigError, match=problem):
        parse_config(text, Path("t"))
