"""Metrics and runs at an OTLP receiver: equal to the page, in order, none lost in an outage."""

import itertools
import json
import logging
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.sdk.resources import Resource
from prometheus_client.parser import text_string_to_metric_families

from tegrascope.collectors.base import SystemClock
from tegrascope.daemon.export.metrics import Page
from tegrascope.daemon.export.otlp import OtlpExport
from tegrascope.daemon.export.otlp_sender import Sender, SendResult, span_of
from tegrascope.daemon.export.snapshot import LiveState
from tegrascope.daemon.settings.config import Otlp
from tests.fakes.otlp_receiver import Receiver, attributes, points, refused_part
from tests.fakes.processes import PATIENCE_SECONDS
from tests.web.web_files import make_pair, needs_openssl

from .test_metrics import OPENMETRICS, RUN_ID, S, full_state, report

# The counts of the export itself change with each page.
OWN = "tegrascope_otlp_"


class Counting(SystemClock):
    """Each look at the wall clock is the next number: that of a page."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def wall_ns(self) -> int:
        return next(self._numbers)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.stop()


@pytest.fixture
def start(receiver: Receiver) -> Iterator[Callable[..., "tuple[OtlpExport, LiveState]"]]:
    """Start exports with short times, which are closed at the end."""
    started = []

    def make(**changes: object) -> "tuple[OtlpExport, LiveState]":
        live = full_state()
        # The least interval of a file is a second.
        settings = Otlp(endpoint=receiver.url).model_copy(update={"interval": 0.05, **changes})
        export = OtlpExport(
            settings,
            lambda: live,
            clock=Counting(),
            pauses_seconds=(0.05, 0.2),
            attempt_seconds=PATIENCE_SECONDS,
            restart_seconds=0.1,
        )
        started.append(export)
        export.start()
        return export, live

    yield make
    for export in started:
        export.close()


def sender(receiver: Receiver, **settings: object) -> Sender:
    """Return a sender in this process."""
    given = {"endpoint": receiver.url, "instance": "robot7", "attempt_seconds": PATIENCE_SECONDS}
    return Sender({**given, **settings})


def page(live: LiveState, accept: str = OPENMETRICS) -> str:
    body, _ = Page(lambda: live.snapshot, lambda: 100 * S).render(accept)
    return body.decode()


def a_page(live: "LiveState | None" = None) -> "dict[str, object]":
    return {"time_ns": 1700 * S, "page": page(live or full_state())}


def series_of(text: str) -> "dict[tuple[str, frozenset[tuple[str, object]]], float]":
    """Return each series of a plain page, read by another parser than that of the child."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {k: float(v) if k == "le" else v for k, v in sample.labels.items()}
            found[sample.name, frozenset(labels.items())] = sample.value
    return found


def numbers(receiver: Receiver) -> "list[int]":
    """Return the numbers of the pages that came."""
    return [one["tegra_info"].sum.data_points[0].time_unix_nano for one in receiver.pages()]


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_every_series_of_the_page_arrives_with_its_value(receiver):
    """Names, labels and values, to the bit; no series is added, and none lacks."""
    live = full_state()
    assert sender(receiver).send(a_page(live)) == SendResult("sent")
    (got,) = receiver.pages()
    # The metrics of this process change between the two.
    ours = {key: v for key, v in series_of(page(live, "")).items() if key[0].startswith("tegra")}
    assert len(ours) > 100
    assert {key: v for key, v in points(got).items() if key[0].startswith("tegra")} == ours
    times = {
        point.time_unix_nano
        for one in got.values()
        for point in getattr(one, one.WhichOneof("data")).data_points
    }
    assert times == {1700 * S}


def test_types_are_those_of_the_specification(receiver):
    sender(receiver).send(a_page())
    (got,) = receiver.pages()
    counter, info = got["tegra_rail_energy_joules_total"].sum, got["tegra_info"].sum
    cumulative = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert (counter.is_monotonic, counter.aggregation_temporality) == (True, cumulative)
    assert not info.is_monotonic
    assert got["tegra_rail_power_watts"].HasField("gauge")
    assert got["tegra_inference_last_run_latency_seconds"].HasField("gauge")
    (latency,) = got["tegra_inference_latency_seconds"].histogram.data_points
    assert (latency.count, sum(latency.bucket_counts)) == (3, 3)
    assert not latency.HasField("min")
    assert all(not one.unit for one in got.values())
    assert got["tegra_rail_power_watts"].description


def test_exemplar_names_the_trace_of_its_run(receiver):
    sender(receiver).send(a_page())
    (got,) = receiver.pages()
    (latency,) = got["tegra_inference_latency_seconds"].histogram.data_points
    (exemplar,) = latency.exemplars
    assert exemplar.trace_id == UUID(RUN_ID).bytes
    assert exemplar.as_double == 0.016
    (misses,) = got["tegra_inference_deadline_misses_total"].sum.data_points
    assert misses.exemplars[0].trace_id == UUID(RUN_ID).bytes


def test_resource_names_board_and_instance(receiver, monkeypatch):
    monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES", raising=False)
    one = sender(receiver, attributes={"deployment.environment.name": "field"})
    one.send(a_page())
    one.send({"report": json.loads(report().model_dump_json(exclude_none=True))})
    (_, metrics), (_, spans) = receiver.got
    found = attributes(metrics.resource_metrics[0].resource)
    wanted = {
        "service.name": "tegrascope",
        "service.instance.id": "robot7",
        "device.model.name": "AGX Orin",
        "tegra.simulated": "false",
        "deployment.environment.name": "field",
    }
    assert wanted.items() <= found.items()
    assert "service.instance.id" in attributes(spans.resource_spans[0].resource)


OTHER = "01a2096d-0d2e-7a88-b625-1591b6e89fd7"


def test_run_is_a_span_with_events(receiver):
    """Times, record, phases, outcome, and links to the runs that overlapped it."""
    spans_ns = {"load": (2 * S, 3 * S), "steady": (4 * S, 9 * S)}
    phases = {name: {"begin_ns": at, "end_ns": to} for name, (at, to) in spans_ns.items()}
    run = report(
        started_wall_ns=5000 * S,
        started_ns=1 * S,
        ended_ns=10 * S,
        phases=phases,
        overlapping_runs=[OTHER],
    )
    document = json.loads(run.model_dump_json(exclude_none=True))
    assert sender(receiver).send({"report": document}) == SendResult("sent")
    (span,) = receiver.spans()
    assert span.trace_id == UUID(RUN_ID).bytes
    assert span.span_id == UUID(RUN_ID).bytes[8:]
    assert span.name == "run resnet50"
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (5000 * S, 5009 * S)
    events = {one.name: (one.time_unix_nano, attributes(one)) for one in span.events}
    seconds = "tegrascope.phase.duration_seconds"
    assert events == {"load": (5001 * S, {seconds: 1.0}), "steady": (5003 * S, {seconds: 5.0})}
    assert [link.trace_id for link in span.links] == [UUID(OTHER).bytes]
    assert span.status.code == 1
    found = attributes(span)
    assert found["tegrascope.run.energy.gross_joules_per_inference"] == 0.2
    assert found["tegrascope.run.quality"] == ["simulated", "overlapped"]
    assert not any(name.startswith("gen_ai") for name in found)


def test_failed_run_is_an_error_with_its_reason(receiver):
    document = json.loads(report(outcome="failed", reason="no memory").model_dump_json())
    sender(receiver).send({"report": document})
    (span,) = receiver.spans()
    assert (span.status.code, span.status.message) == (2, "no memory")


def test_tokens_have_the_names_for_generative_ai():
    document = json.loads(report().model_dump_json(exclude_none=True))
    span = span_of({**document, "unit": "token", "units": 812.0}, Resource({}))
    assert span.attributes["gen_ai.usage.output_tokens"] == 812
    span = span_of({**document, "unit": "frame", "units": 812.0}, Resource({}))
    assert "gen_ai.usage.output_tokens" not in span.attributes


@pytest.mark.parametrize(
    ("status", "end", "words"),
    [
        (400, "refused", "answers 400"),
        (404, "refused", "answers 404"),
        (429, None, "answers 429"),
        (503, None, "answers 503"),
        (401, None, "check headers_file"),
        (302, None, "redirects"),
    ],
)
def test_answer_decides_whether_another_attempt_is_made(receiver, status, end, words):
    receiver.status = status
    found, problem, _ = sender(receiver).send(a_page())
    assert found == end
    assert words in problem


def test_problem_of_a_receiver_that_is_gone_is_short_and_stays_the_same(receiver):
    """It is logged once, so it has no address of an object."""
    receiver.stop()
    one = sender(receiver)
    (end, problem, _), again = one.send(a_page()), one.send(a_page())
    assert (end, problem, 0) == again
    assert problem == f"{receiver.url} cannot be reached: Connection refused"


def test_receiver_that_is_silent_is_given_up(receiver):
    receiver.silent.set()
    end, problem, _ = sender(receiver, attempt_seconds=0.5).send(a_page())
    receiver.silent.clear()
    assert end is None
    assert "no answer in time" in problem


def test_page_of_a_web_server_is_not_taken_for_an_answer(receiver):
    receiver.media, receiver.body = "text/html", b"<html>"
    end, problem, _ = sender(receiver).send(a_page())
    assert end is None
    assert "is not an OTLP receiver" in problem


def test_points_that_the_receiver_refuses_are_counted_and_the_others_are_sent(receiver):
    receiver.body = refused_part("too old")
    end, problem, refused = sender(receiver).send(a_page())
    assert (end, refused) == ("sent", 3)
    assert "refuses 3 of " in problem
    assert "too old" in problem


def test_page_of_which_every_point_is_refused_is_refused(receiver):
    receiver.body = refused_part("too old", 10**6)
    end, _, refused = sender(receiver).send(a_page())
    assert (end, refused) == ("refused", 0)


def test_run_that_the_receiver_refuses_is_refused(receiver):
    receiver.body = refused_part("too old", 1)
    document = json.loads(report().model_dump_json(exclude_none=True))
    assert sender(receiver).send({"report": document}).end == "refused"


def test_refused_part_of_an_answer_in_json_is_read(receiver):
    receiver.media = "application/json; charset=utf-8"
    receiver.body = b'{"partialSuccess": {"rejectedDataPoints": "2", "errorMessage": "old"}}'
    assert sender(receiver).send(a_page()).refused_points == 2
    receiver.body = b"{}"
    assert sender(receiver).send(a_page()) == SendResult("sent")


@pytest.mark.parametrize(
    "body",
    [
        bytes(range(7, 207)) * 25,
        b"[1]",
        b"ok",
        b"[" * 60_000,
        b'{"partialSuccess": {"rejectedDataPoints": [1]}}',
        b'{"partialSuccess": {"rejectedDataPoints": 1e999}}',
        b'{"partialSuccess": [1]}',
    ],
)
@pytest.mark.parametrize("media", ["application/x-protobuf", "application/json", "text/plain"])
def test_other_body_than_that_of_a_receiver_does_not_count_as_sent(receiver, body, media):
    receiver.body, receiver.media = body, media
    end, problem, _ = sender(receiver).send(a_page())
    assert end is None
    assert "is not an OTLP receiver" in problem


def test_refused_points_are_on_the_page(receiver, start):
    receiver.body = refused_part("too old")
    _, live = start()
    wait_for(lambda: live.snapshot.otlp["", "refused_points"] >= 6)
    series = series_of(page(live, ""))
    assert series[f"{OWN}refused_points_total", frozenset()] >= 6
    assert series[f"{OWN}sent_total", frozenset({("kind", "metrics")})] >= 2


@pytest.mark.parametrize("header", ["X-Api-Key: {}", "Authorization: Bearer {}"])
def test_secret_that_the_receiver_repeats_is_covered(receiver, tmp_path, header):
    file = tmp_path / "headers"
    file.write_text(header.format("SECRETKEY") + "\n")
    receiver.status, receiver.body = 400, b"the key SECRETKEY is wrong"
    problem = sender(receiver, headers_file=str(file)).send(a_page()).problem
    assert "the key [secret] is wrong" in problem


def test_headers_file_that_is_no_small_file_is_named(receiver, tmp_path):
    """A pipe would block the process that sends, for ever."""
    file = tmp_path / "headers"
    os.mkfifo(file)
    assert str(file) in sender(receiver, headers_file=str(file)).send(a_page()).problem
    assert (
        "is not a regular file" in sender(receiver, headers_file="/dev/zero").send(a_page()).problem
    )


def test_header_with_control_characters_is_named_without_its_value(receiver, tmp_path):
    file = tmp_path / "headers"
    file.write_text("X-Api-Key: SECRET\x00KEY\n")
    problem = sender(receiver, headers_file=str(file)).send(a_page()).problem
    assert "X-Api-Key" in problem
    assert "KEY is" not in problem
    assert "SECRET" not in problem


def test_secret_comes_from_a_file_that_may_change(receiver, tmp_path):
    file = tmp_path / "headers"
    one = sender(receiver, headers_file=str(file))
    end, problem, _ = one.send(a_page())
    assert end is None
    assert str(file) in problem
    file.write_text("no colon\n")
    assert "NAME: VALUE" in one.send(a_page())[1]
    file.write_text("Authorization: Bearer old\nX-Scope-OrgID: lab:7\n\n")
    receiver.status = 401
    assert one.send(a_page())[0] is None
    assert receiver.headers["authorization"] == "Bearer old"
    assert receiver.headers["x-scope-orgid"] == "lab:7"
    file.write_text("Authorization: Bearer new\n")
    receiver.status = 200
    assert one.send(a_page()) == SendResult("sent")
    assert receiver.headers["authorization"] == "Bearer new"


@needs_openssl
def test_tls_takes_the_authority_of_a_file(tmp_path):
    make_pair(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    receiver = Receiver(tls=context)
    try:
        end, problem, _ = sender(receiver).send(a_page())
        assert end is None
        assert "CERTIFICATE_VERIFY_FAILED" in problem
        lacks = sender(receiver, ca_file=str(tmp_path / "lacks.pem"))
        assert "lacks.pem" in lacks.send(a_page())[1]
        knows = sender(receiver, ca_file=str(tmp_path / "server.pem"))
        assert knows.send(a_page()) == SendResult("sent")
    finally:
        receiver.stop()


def test_what_cannot_be_sent_does_not_keep_the_rest_back(receiver):
    one = sender(receiver)
    assert one.send({"time_ns": 1, "page": "no page\n"})[0] == "invalid"
    assert one.send(a_page()) == SendResult("sent")


def test_nothing_is_lost_in_an_outage(receiver, start, caplog):
    """Pages and runs wait, and come in their order; the problem is known meanwhile."""
    caplog.set_level(logging.INFO)
    export, live = start()
    wait_for(lambda: len(receiver.pages()) > 3)
    receiver.stop()
    for number in range(5):
        export.add(report(inferences=number))
        time.sleep(0.2)
    wait_for(lambda: live.snapshot.otlp["", "queued"] > 30)
    assert "cannot be reached" in (export.problem or "")
    before = live.snapshot.otlp["metrics", "sent"]
    receiver.start()
    wait_for(lambda: len(receiver.spans()) == 5 and len(receiver.pages()) > before + 30)
    assert numbers(receiver) == [*range(1, len(receiver.pages()) + 1)]
    runs = [attributes(span)["tegrascope.run.inferences"] for span in receiver.spans()]
    assert runs == [0, 1, 2, 3, 4]
    wait_for(lambda: live.snapshot.otlp["runs", "sent"] == 5)
    assert not any(live.snapshot.otlp[kind, "overflow"] for kind in ("metrics", "runs"))
    assert export.problem is None
    assert caplog.messages == []  # the session logs the problem of each companion, and its end


def test_beyond_the_queue_the_oldest_are_dropped_and_counted(receiver, start):
    receiver.stop()
    export, live = start(queue_bytes=40_000)
    wait_for(lambda: live.snapshot.otlp["metrics", "overflow"] > 5)
    receiver.start()
    wait_for(lambda: live.snapshot.otlp["", "queued"] < 2)
    export.close()
    found = numbers(receiver)
    assert found == sorted(set(found))
    series = series_of(page(live, ""))
    lost = series[f"{OWN}dropped_total", frozenset({("kind", "metrics"), ("reason", "overflow")})]
    assert max(found) - len(found) == lost
    assert lost > 5
    # Those that waited first are gone, but for the one that the sender held.
    assert len({1, 2, 3, 4, 5, 6}.intersection(found)) <= 1


def test_killed_child_loses_nothing(receiver, start):
    """Another one is started, and gets again what the first one did not answer."""
    export, _ = start()
    wait_for(lambda: len(receiver.pages()) > 3)
    receiver.stop()
    wait_for(lambda: export.problem is not None)
    for path in Path("/proc/self/task").glob("*/children"):
        for pid in path.read_text().split():
            if "otlp_sender" in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(int(pid), signal.SIGKILL)
    wait_for(lambda: "ended" in (export.problem or ""))
    receiver.start()
    count = len(receiver.pages())
    wait_for(lambda: len(receiver.pages()) > count + 10)
    assert numbers(receiver) == [*range(1, len(receiver.pages()) + 1)]


def test_close_sends_a_last_page_and_the_last_run(receiver, start):
    export, _ = start(interval=3600.0)
    wait_for(lambda: len(receiver.pages()) == 1)
    export.add(report())
    export.close()
    assert len(receiver.pages()) == 2
    assert len(receiver.spans()) == 1


def test_another_source_of_telemetry_stops_nothing(receiver, start):
    """A session stops its companions and starts them again when its source changes."""
    export, _ = start()
    wait_for(lambda: len(receiver.pages()) > 3)
    export.stop()
    export.start()
    wait_for(lambda: len(receiver.pages()) > 10)
    assert numbers(receiver) == [*range(1, len(receiver.pages()) + 1)]


def test_only_one_kind_can_be_sent(receiver, start):
    export, _ = start(send=frozenset({"runs"}))
    export.add(report())
    wait_for(lambda: receiver.spans())
    export.close()
    assert not receiver.pages()


def test_standard_variables_are_not_read(receiver, start, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=other")
    start()
    wait_for(lambda: receiver.pages())
    assert "authorization" not in receiver.headers
    found = attributes(receiver.got[0][1].resource_metrics[0].resource)
    assert found["service.name"] == "tegrascope"


def test_child_without_the_packages_names_the_remedy():
    code = "import sys, runpy; sys.modules['opentelemetry'] = None; runpy.run_module({!r})"
    argv = [sys.executable, "-c", code.format("tegrascope.daemon.export.otlp_sender"), "{}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "pip install opentelemetry-exporter-otlp-proto-common opentelemetry-sdk"
    )
