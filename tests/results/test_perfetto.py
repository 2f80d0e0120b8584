"""``runs export -f perfetto``, read back as a trace processor does."""

import subprocess
import sys
from array import array
from dataclasses import replace
from math import nan
from typing import NamedTuple

import pytest

from tegrascope.daemon.measure.blocks import Block, encode
from tegrascope.daemon.measure.report import (
    DeadlineReport,
    Environment,
    RunReport,
    Span,
)
from tegrascope.daemon.measure.timeline import SealedBlock
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.workbench.cli import main

pytest.importorskip("perfetto", reason="pip install 'perfetto>=0.56'")
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from tegrascope.workbench.results.perfetto_trace import write_trace

S = 1_000_000_000
WALL = 1_790_000_000 * S + 123_456_789
MONOTONIC, REALTIME = pb.BUILTIN_CLOCK_MONOTONIC, pb.BUILTIN_CLOCK_REALTIME
PHASES = ("load", "build", "warm_up", "baseline_before", "steady", "baseline_after")


class Slice(NamedTuple):
    """A slice or an instant as Perfetto shows it; ``path`` has the names of its tracks."""

    path: tuple[str, ...]
    begin_ns: int
    end_ns: int
    name: str


class Trace:
    """A trace by the rules of the format: events in order of time, an end closes the last begin."""

    def __init__(self, path):
        trace = pb.Trace.FromString(path.read_bytes())
        self.tracks, self.slices, self.instants, self.counters = {}, [], [], {}
        self.arguments, self.attributes, self.offset_ns, open_slices = {}, {}, None, {}
        for packet in trace.packet:
            if packet.HasField("track_descriptor"):
                assert packet.track_descriptor.uuid not in self.tracks
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            if packet.HasField("clock_snapshot"):
                clocks = {one.clock_id: one.timestamp for one in packet.clock_snapshot.clocks}
                assert packet.clock_snapshot.primary_trace_clock == MONOTONIC
                self.offset_ns = clocks[REALTIME] - clocks[MONOTONIC]
            for one in packet.trace_attributes.attribute:
                self.attributes[one.key] = one.string_value
        events = [packet for packet in trace.packet if packet.HasField("track_event")]
        for packet in sorted(events, key=lambda one: one.timestamp):
            assert packet.timestamp_clock_id == MONOTONIC
            assert packet.trusted_packet_sequence_id
            event, at = packet.track_event, packet.timestamp
            track = event.track_uuid
            if event.type == event.TYPE_SLICE_BEGIN:
                open_slices.setdefault(track, []).append((at, event))
            elif event.type == event.TYPE_SLICE_END:
                begin, first = open_slices[track].pop()
                self.slices.append(Slice(self.path(track), begin, at, first.name))
                self.arguments[self.slices[-1]] = first.debug_annotations
            elif event.type == event.TYPE_INSTANT:
                self.instants.append(Slice(self.path(track), at, at, event.name))
            else:
                assert event.type == event.TYPE_COUNTER
                values = self.counters.setdefault(self.tracks[track].name, [])
                values.append((at, event.double_counter_value))
        assert not any(open_slices.values())

    def path(self, track):
        names = []
        while track:
            names.append(self.tracks[track].name)
            track = self.tracks[track].parent_uuid
        return tuple(reversed(names))

    def under(self, name):
        return sorted(one for one in self.slices if one.path[-1] == name)


def run_of(number, begin_ns, boot_ns=WALL, seconds=12, **facts):
    """Return a run with odd nanoseconds in each time."""
    edges = [begin_ns + round(k * seconds * S / 7) + 7 * k for k in range(7)]
    given = {
        "run_id": f"0193a{number}",
        "workload": "yolo",
        "backend": "tensorrt",
        "device": "dla0",
        "outcome": "ok",
        "started_wall_ns": begin_ns + boot_ns,
        "started_ns": begin_ns,
        "ended_ns": begin_ns + seconds * S,
        "phases": {
            name: Span(begin_ns=a, end_ns=b)
            for name, a, b in zip(PHASES, edges, edges[1:], strict=False)
        },
        "deadline": DeadlineReport(deadline_seconds=0.01, misses=2, worst_lateness_seconds=0.015),
        "cold_start_seconds": {"import": 0.25, "first_inference": 0.5},
        "quality": ("not_steady", "throttled"),
    }
    return RunReport(**(given | facts))


def samples(begin_ns, columns, boot_ns=WALL, step_ns=1_009_000_003):
    """Return a block whose columns have the given values."""
    count = len(next(iter(columns.values())))
    times = array("q", (begin_ns + i * step_ns for i in range(count)))
    wall = array("q", (at + boot_ns for at in times))
    block = Block("tegrastats", times, wall, {n: array("d", v) for n, v in columns.items()})
    return SealedBlock("tegrastats", times[0], times[-1], wall[0], wall[-1], count, encode(block))


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "tegrascope.db", "boot")
    yield made
    made.close()


def export(store, *arguments):
    output = store.path.with_name("out.pftrace")
    options = ("--state-dir", str(store.path), "-o", str(output), "-f", "perfetto")
    assert main(["runs", "export", *arguments, *options]) == 0
    return Trace(output)


def test_every_slice_and_counter_equals_its_source(store):
    run = run_of(1, 100 * S + 1)
    store.finish(run)
    values = {
        "rails.VDD_IN.instant_watts": [4.711 + i / 7 for i in range(12)],
        "gpu.frequency_hertz.0": [1_300_500_000.0 + i for i in range(12)],
        "temperatures_celsius.tj": [-40.5 + i for i in range(12)],
        "dla.0.busy_ratio": [i / 13 for i in range(12)],
        "dla.0.process_seconds.detector": [float(i) for i in range(12)],
    }
    store.add_block(samples(100 * S + 17, values))
    trace = export(store, "a1")
    at = [100 * S + 17 + i * 1_009_000_003 for i in range(12)]
    assert trace.counters == {n: list(zip(at, v, strict=True)) for n, v in values.items()}
    units = {one.name: one.counter.unit_name for one in trace.tracks.values()}
    assert [units[name] for name in values] == ["watts", "hertz", "celsius", "ratio", "seconds"]
    lane = "yolo on dla0"
    (whole,) = trace.under("run")
    assert whole == ((lane, "run"), 100 * S + 1, 112 * S + 1, "ok")
    steps = [100 * S + 1 + round(k * 12 * S / 7) + 7 * k for k in range(7)]
    assert trace.under("phase") == [
        ((lane, "phase"), a, b, name) for name, a, b in zip(PHASES, steps, steps[1:], strict=False)
    ]
    assert [(one.begin_ns, one.name) for one in trace.instants] == [
        (112 * S + 1, "not_steady"),
        (112 * S + 1, "throttled"),
    ]
    assert trace.offset_ns == WALL
    told = {one.name: one for one in trace.arguments[whole]}
    assert told["run_id"].string_value == "0193a1"
    assert {one.name: one.double_value for one in told["cold_start_seconds"].dict_entries} == {
        "import": 0.25,
        "first_inference": 0.5,
    }
    assert trace.attributes["simulated"] == "false"


def test_phases_that_an_application_marked_are_slices(store, tmp_path):
    marked = [(101 * S + 1, 102 * S + 3, "prefill"), (102 * S + 3, 105 * S, "decode")]
    run = run_of(1, 100 * S).model_dump(mode="json", exclude_none=True)
    phases = [{"begin_ns": a, "end_ns": b, "name": name, "units": 7.0} for a, b, name in marked]
    path = tmp_path / "run.pftrace"
    write_trace(History(store.path), [run | {"work_phases": phases}], path)
    trace = Trace(path)
    path = ("yolo on dla0", "work phase")
    assert trace.under("work phase") == [(path, a, b, name) for a, b, name in marked]
    (told,) = (one for one in trace.arguments[trace.under("work phase")[0]] if one.name == "units")
    assert told.double_value == 7.0


def test_runs_of_one_lane_that_overlap_are_on_separate_tracks(store):
    for number, at in enumerate((100 * S, 105 * S, 112 * S, 112 * S)):
        store.finish(run_of(number, at))
    trace = export(store)
    assert [(one.begin_ns, one.end_ns) for one in trace.under("run")] == [
        (100 * S, 112 * S),
        (105 * S, 117 * S),
        (112 * S, 124 * S),
        (112 * S, 124 * S),
    ]


def test_absent_value_has_no_event_and_unknown_column_no_track(store):
    store.finish(run_of(1, 100 * S))
    store.add_block(
        samples(100 * S, {"dla.0.utilization_ratio": [0.5, nan, 0.0], "not.known": [1, 2, 3]})
    )
    trace = export(store)
    assert trace.counters == {
        "dla.0.utilization_ratio": [(100 * S, 0.5), (100 * S + 2 * 1_009_000_003, 0.0)]
    }


def test_growing_count_of_throttle_events_is_an_instant(store):
    store.finish(run_of(1, 100 * S, quality=()))
    store.add_block(samples(100 * S, {"throttle.oc1.events": [7, 7]}))
    store.add_block(samples(103 * S, {"throttle.oc1.events": [9, 9, 10]}))
    at = 103 * S + 2 * 1_009_000_003
    assert export(store).instants == [
        (("telemetry", "throttle events"), 103 * S, 103 * S, "oc1"),
        (("telemetry", "throttle events"), at, at, "oc1"),
    ]


def test_telemetry_reaches_two_seconds_around_the_runs(store):
    store.finish(run_of(1, 100 * S))
    values = {"gpu.utilization_ratio": [0.25] * 60}
    store.add_block(samples(80 * S, values, step_ns=S))
    trace = export(store)
    times = [at for at, _ in trace.counters["gpu.utilization_ratio"]]
    assert times == [at * S for at in range(98, 115)]


def test_simulated_run_says_so(store):
    store.finish(run_of(1, 100 * S, environment=Environment(simulated=True)))
    trace = export(store)
    assert trace.attributes["simulated"] == "true"
    assert ("telemetry of a simulated board",) in map(trace.path, trace.tracks)


def test_runs_of_two_boots_have_no_common_clock(store, tmp_path, capsys):
    later = WALL + 3600 * S
    store.finish(run_of(1, 100 * S))
    store.finish(run_of(2, 100 * S, later))
    output = tmp_path / "kept.pftrace"
    output.write_text("earlier work")
    arguments = ["runs", "export", "-f", "perfetto", "--state-dir", str(tmp_path)]
    assert main([*arguments, "-o", str(output)]) == 1
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert "one boot" in printed.err
    assert output.read_text() == "earlier work"


def test_telemetry_of_another_boot_at_the_same_monotonic_time_is_left_out(tmp_path):
    for boot, boot_ns, load in (("a", WALL, 0.25), ("b", WALL + 3600 * S, 0.75)):
        store = Store(tmp_path / "tegrascope.db", boot)
        store.add_block(samples(101 * S, {"gpu.utilization_ratio": [load]}, boot_ns))
        store.finish(run_of(boot, 100 * S, boot_ns))
        store.close()
    for boot, load in (("a", 0.25), ("b", 0.75)):
        trace = export(store, f"0193a{boot}")
        assert trace.counters == {"gpu.utilization_ratio": [(101 * S, load)]}


def test_telemetry_after_a_step_of_the_wall_clock_is_of_the_same_boot(store):
    store.finish(run_of(1, 100 * S))
    store.add_block(samples(101 * S, {"gpu.utilization_ratio": [0.25]}))
    store.add_block(samples(105 * S, {"gpu.utilization_ratio": [0.5]}, WALL - 3600 * S))
    assert export(store).counters == {"gpu.utilization_ratio": [(101 * S, 0.25), (105 * S, 0.5)]}


def test_damaged_block_is_skipped(store, caplog):
    store.finish(run_of(1, 100 * S))
    good = samples(101 * S, {"gpu.utilization_ratio": [0.25]})
    store.add_block(replace(good, data=good.data[:-1] + b"x"))
    store.add_block(good)
    assert export(store).counters == {"gpu.utilization_ratio": [(101 * S, 0.25)]}
    assert "skipped" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        ((), ["0193a3", "0193a2", "0193a1"]),
        (("a3", "a1"), ["0193a3", "0193a1"]),
        (("--workload", "vit"), ["0193a2"]),
        # The others are of long ago.
        (("--since", "1h"), []),
    ],
)
def test_selection_is_the_same_for_all_formats(arguments, ids, store, capsys):
    for number, workload in ((1, "yolo"), (2, "vit"), (3, "yolo")):
        store.finish(run_of(number, number * 100 * S, boot_ns=WALL - 10**9 * S, workload=workload))
    assert main(["runs", "export", *arguments, "--state-dir", str(store.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split('"')[3] for line in lines] == ids
    if ids:
        assert len(export(store, *arguments).under("run")) == len(ids)
    else:
        command = ["runs", "export", *arguments, "-f", "perfetto", "--state-dir", str(store.path)]
        assert main(command) == 1
        assert "no run is selected" in capsys.readouterr().err


def test_ids_and_filters_exclude_each_other(store):
    with pytest.raises(SystemExit):
        main(["runs", "export", "a1", "--since", "1h", "--state-dir", str(store.path)])


def test_missing_package_is_one_line(store, tmp_path):
    """A package of that name without content comes first in the path."""
    (tmp_path / "hidden/perfetto").mkdir(parents=True)
    (tmp_path / "hidden/perfetto/__init__.py").touch()
    store.finish(run_of(1, 100 * S))
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'hidden')!r});"
        "from tegrascope.workbench.cli import main;"
        f"sys.exit(main(['runs', 'export', '-f', 'perfetto', '--state-dir', {str(tmp_path)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "perfetto is not installed" in done.stderr
