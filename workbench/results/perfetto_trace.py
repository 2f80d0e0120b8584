"""Stored runs and their telemetry as a trace for Perfetto and ``ui.perfetto.dev``.

Times are CLOCK_MONOTONIC of one boot, with the wall time of one moment: the trace opens beside
those of other programs on the board. The store keeps no time of single inferences, stages and DLA
tasks. Their statistics are arguments of a run's slice, and counters.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from math import isnan
from pathlib import Path
from typing import IO, Any, NamedTuple

from ... import __version__
from ...daemon.measure.blocks import CorruptBlockError, decode
from ...daemon.outputs import open_output
from ...daemon.store.history import ONE_BOOT_NS, History
from ...parsers import signals
from ...parsers.errors import PIP_INSTALL, UserError

try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
except ImportError:
    raise UserError("perfetto is not installed", f"{PIP_INSTALL} 'perfetto>=0.56'") from None

Run = Mapping[str, Any]
"""A finished run as ``History`` has it."""

_LOG = logging.getLogger(__name__)
_MARGIN_NS = 2_000_000_000
_UNITS = ("watts", "volts", "amperes", "hertz", "bytes", "celsius", "seconds", "ratio")
_KINDS = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}


class _Slice(NamedTuple):
    """A stretch of CLOCK_MONOTONIC with a name and arguments."""

    begin_ns: int
    end_ns: int
    name: str
    arguments: Mapping[str, Any] = {}


class _Writer:
    """Writes a trace packet by packet."""

    def __init__(self, output: IO[bytes]) -> None:
        self._builder = StreamingTraceProtoBuilder(output)
        self._numbers = count(1)

    @contextmanager
    def packet(self) -> Iterator[Any]:
        """Yield a packet to fill in; write it then."""
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = 1
        yield packet
        self._builder.write_packet(packet)

    def track(self, name: str, parent: int | None = None, unit: str | None = None) -> int:
        """Write a track, of a counter if it has a unit, and return its number."""
        with self.packet() as packet:
            track = packet.track_descriptor
            track.uuid, track.name = next(self._numbers), name
            if parent is not None:
                track.parent_uuid = parent
            if unit is not None:
                # Counters of one group and unit get one axis.
                track.counter.unit_name = track.counter.y_axis_share_key = unit
        return int(track.uuid)

    def event(
        self, kind: str, track: int, at_ns: int, arguments: Mapping[str, Any] = {}, **fields: Any
    ) -> None:
        """Write the begin or end of a slice, an instant, or the value of a counter."""
        with self.packet() as packet:
            packet.timestamp, packet.timestamp_clock_id = at_ns, pb.BUILTIN_CLOCK_MONOTONIC
            event = packet.track_event
            event.MergeFrom(pb.TrackEvent(type=f"TYPE_{kind}", track_uuid=track, **fields))
            for key, argument in arguments.items():
                _annotate(event.debug_annotations.add(name=key), argument)

    def slices(self, name: str, parent: int, slices: Iterable[_Slice]) -> None:
        """Write slices on tracks of one name, which Perfetto shows as one; none overlap on one."""
        ends: dict[int, int] = {}
        for stretch in sorted(slices, key=lambda stretch: stretch[:2]):
            track = _free_track(ends, stretch.begin_ns)
            if track is None:
                track = self.track(name, parent)
            ends[track] = stretch.end_ns
            arguments = stretch.arguments
            self.event("SLICE_BEGIN", track, stretch.begin_ns, arguments, name=stretch.name)
            self.event("SLICE_END", track, stretch.end_ns)


def _free_track(ends: Mapping[int, int], begin_ns: int) -> int | None:
    """Return a track whose last slice has ended by a time, or None."""
    for track, end_ns in ends.items():
        if end_ns <= begin_ns:
            return track
    return None


def _annotate(annotation: Any, value: Any) -> None:
    """Set an argument of an event to a value of JSON."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _annotate(annotation.dict_entries.add(name=key), inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _annotate(annotation.array_values.add(), inner)
    elif value is not None:
        setattr(annotation, _KINDS[type(value)], value)


def write_trace(history: History, runs: Sequence[Run], path: Path | None) -> None:
    """Write runs, and the telemetry from the first to the last of them with two seconds around.

    Raises:
        UserError: No run is given, the runs do not have one clock, or the file cannot be written.
    """
    if not runs:
        raise UserError("no run is selected", "see tegrascope runs list")
    runs = sorted(runs, key=lambda run: int(run["started_ns"]))
    offsets = [run["started_wall_ns"] - run["started_ns"] for run in runs]
    if max(offsets) - min(offsets) > ONE_BOOT_NS:
        raise UserError(
            "the board was started again, or its clock was set, between these runs",
            "a trace has one clock: select the runs of one boot, by ID or --since",
        )
    begin_ns = max(runs[0]["started_ns"] - _MARGIN_NS, 0)
    end_ns = max(run["ended_ns"] for run in runs) + _MARGIN_NS
    is_simulated = any(run.get("environment", {}).get("simulated") for run in runs)
    with open_output(path) as output:
        writer = _Writer(output.buffer)
        _write_head(writer, begin_ns, begin_ns + offsets[0], is_simulated=is_simulated)
        _write_runs(writer, runs)
        root = writer.track("telemetry of a simulated board" if is_simulated else "telemetry")
        blocks = history.blocks_of_boot(offsets[0], begin_ns, end_ns)
        _write_telemetry(writer, root, blocks, begin_ns, end_ns)


def _write_head(writer: _Writer, begin_ns: int, wall_ns: int, *, is_simulated: bool) -> None:
    """Write one moment by both clocks, and what wrote the trace."""
    with writer.packet() as packet:
        clocks = packet.clock_snapshot
        clocks.primary_trace_clock = pb.BUILTIN_CLOCK_MONOTONIC
        clocks.clocks.add(clock_id=pb.BUILTIN_CLOCK_MONOTONIC, timestamp=begin_ns)
        clocks.clocks.add(clock_id=pb.BUILTIN_CLOCK_REALTIME, timestamp=wall_ns)
    with writer.packet() as packet:
        attribute = packet.trace_attributes.attribute
        attribute.add(key="tegrascope", string_value=__version__)
        attribute.add(key="simulated", string_value=str(is_simulated).lower())


def _write_runs(writer: _Writer, runs: Sequence[Run]) -> None:
    by_lane: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_lane[f"{run['workload']} on {run['device']}"].append(run)
    for title, group in by_lane.items():
        lane = writer.track(title)
        spans: defaultdict[str, list[_Slice]] = defaultdict(list)
        for run in group:
            whole = _Slice(run["started_ns"], run["ended_ns"], run["outcome"], run)
            spans["run"].append(whole)
            spans["phase"] += _phases(run)
            spans["work phase"] += _work_phases(run)
        for name, slices in spans.items():
            writer.slices(name, lane, slices)
        _write_flags(writer, writer.track("quality flags", lane), group)


def _write_flags(writer: _Writer, track: int, runs: Sequence[Run]) -> None:
    """Write each flag at the end of its run: it is about all of it, and known only then."""
    for run in runs:
        for flag in run.get("quality", ()):
            about = {"run_id": run["run_id"]}
            writer.event("INSTANT", track, run["ended_ns"], about, name=flag)


def _phases(run: Run) -> Iterator[_Slice]:
    """Yield the phases of a run: cold start (load, build, warm-up), idle phases, steady phase."""
    for name, span in run.get("phases", {}).items():
        yield _Slice(span["begin_ns"], span["end_ns"], name)


def _work_phases(run: Run) -> Iterator[_Slice]:
    """Yield the phases of an application's own work, such as prefill and decode."""
    for one in run.get("work_phases", ()):
        yield _Slice(one["begin_ns"], one["end_ns"], one["name"], one)


@cache
def _unit(column: str) -> str:
    """Return the unit of a column, ``count`` for a plain number, and ``""`` if it has no metric."""
    row = signals.split(column)
    if row is None or row[0].family is None:
        return ""
    word = row[0].family.removesuffix("_total").rpartition("_")[2]
    return word if word in _UNITS else "count"


def _write_telemetry(
    writer: _Writer, root: int, blocks: Iterable[bytes], begin_ns: int, end_ns: int
) -> None:
    """Write each column that has a metric as a counter, and throttle events as instants."""
    tracks = _SignalTracks(writer, root)
    counted: dict[str, float] = {}
    for data in blocks:
        try:
            block = decode(data, lambda name: bool(_unit(name)))
        except CorruptBlockError as error:
            _LOG.warning("a stored block of samples is skipped: %s", error)
            continue
        for name in sorted(block.columns, key=signals.column_order):
            kind = signals.THROTTLE_EVENTS.label_of(name)
            for at_ns, value in zip(block.times_ns, block.columns[name], strict=True):
                if isnan(value) or not begin_ns <= at_ns <= end_ns:
                    continue
                writer.event("COUNTER", tracks.of_signal(name), at_ns, double_counter_value=value)
                if kind is None:
                    continue
                events = int(value - counted.get(kind, value))
                if events:
                    about = {"events since the last sample": events}
                    track = tracks.of_group("throttle events")
                    writer.event("INSTANT", track, at_ns, about, name=kind)
                counted[kind] = value


class _SignalTracks:
    """The tracks of signals, each in the group of its part of the record, made when needed."""

    def __init__(self, writer: _Writer, root: int) -> None:
        self._writer, self._root = writer, root
        self._groups: dict[str, int] = {}
        self._signals: dict[str, int] = {}

    def of_group(self, name: str) -> int:
        if name not in self._groups:
            self._groups[name] = self._writer.track(name, self._root)
        return self._groups[name]

    def of_signal(self, column: str) -> int:
        if column not in self._signals:
            group = self.of_group(column.partition(".")[0])
            self._signals[column] = self._writer.track(column, group, _unit(column))
        return self._signals[column]
