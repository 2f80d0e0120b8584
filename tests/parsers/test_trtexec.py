"""What trtexec prints is read in the forms of its generations, and no text is fatal."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.parsers.errors import UnreadableError
from tegrascope.parsers.inference.events import Order
from tegrascope.parsers.inference.trtexec import (
    build_arguments,
    cause_of,
    chooses_types,
    context_bytes_in,
    message_of,
    options_in,
    parse_report,
    parse_times,
    reason_in,
    run_arguments,
    version_in,
)

CASES = Path(__file__).parents[1] / "cases"

# Made after the form that public sources and logs show of 8.4, of 8.6 to 10, and of 11.
SUMMARY_84 = """
[11/21/2026-09:01:00] [I] Warmup completed 6 queries over 200 ms
[11/21/2026-09:01:00] [I] Timing trace has 126 queries over 3.0734 s
[11/21/2026-09:01:00] [I] === Trace details ===
[11/21/2026-09:01:00] [I] Average on 10 runs - GPU latency: 2.5 ms - Host latency: 3 ms
[11/21/2026-09:01:00] [I] === Performance summary ===
[11/21/2026-09:01:00] [I] Throughput: 40.9976 qps
[11/21/2026-09:01:00] [I] Latency: min = 2.5 ms, max = 4 ms, mean = 3 ms, \
median = 2.75 ms, percentile(99%) = 3.5 ms
[11/21/2026-09:01:00] [I] End-to-End Host Latency: min = 5 ms, max = 6 ms, mean = 5.5 ms, \
median = 5.5 ms, percentile(99%) = 6 ms
[11/21/2026-09:01:00] [I] Enqueue Time: min = 0.25 ms, max = 0.5 ms, mean = 0.3 ms, \
median = 0.25 ms, percentile(99%) = 0.5 ms
[11/21/2026-09:01:00] [I] H2D Latency: min = 0.5 ms, max = 0.5 ms, mean = 0.5 ms, \
median = 0.5 ms, percentile(99%) = 0.5 ms
[11/21/2026-09:01:00] [I] GPU Compute Time: min = 2 ms, max = 3 ms, mean = 2.25 ms, \
median = 2.125 ms, percentile(99%) = 3 ms
[11/21/2026-09:01:00] [I] D2H Latency: min = 0 ms, max = 0.5 ms, mean = 0.25 ms, \
median = 0.125 ms, percentile(99%) = 0.5 ms
[11/21/2026-09:01:00] [I] Total Host Walltime: 3.0734 s
[11/21/2026-09:01:00] [I] Total GPU Compute Time: 0.2835 s
[11/21/2026-09:01:00] [W] * Throughput may be bound by host-to-device transfers.
[11/21/2026-09:01:00] [W]   Add --noDataTransfers flag to disable data transfers.
"""
SUMMARY_11 = """
[I] TensorRT version: 11.3.0
[I] Timing trace has 3402 queries over 3.0026 s
[I] === Performance summary ===
[I] Throughput: 1133.1 qps
[I] Latency: min = 0.875 ms, max = 1 ms, mean = 0.9 ms, median = 0.89 ms, \
percentile(90%) = 0.9375 ms, percentile(95%) = 0.95 ms, percentile(99%) = 0.975 ms
[I] H2D Latency: min = 0 ms, max = 0 ms, mean = 0 ms, median = 0 ms, percentile(90%) = 0 ms
[I] GPU Compute Time: min = nan ms, max = inf ms, mean = 0.9 ms, median = 0.89 ms
"""
HELP_86 = """
=== Build Options ===
  --fp16                      Enable fp16 precision, in addition to fp32 (default = disabled)
  --int8                      Enable int8 precision
  --buildOnly                 Exit after the engine has been built
  --streams=N                 Deprecated, see --infStreams
  -h, --help                  Print this message
      --noDataTransfers       Disable DMA transfers
  --useCudaGraph              Use CUDA graph to capture engine execution. See also
                              --noCudaGraph, which is told of here alone.
"""


def test_summary_gives_count_and_remarks():
    report = parse_report(SUMMARY_84.splitlines())
    assert report.queries == 126
    assert report.warnings == ("Throughput may be bound by host-to-device transfers.",)
    report = parse_report(SUMMARY_11.splitlines())
    assert (report.queries, report.warnings) == (3402, ())


@pytest.mark.parametrize("lines", [[], ["Throughput: 5 qps"], SUMMARY_84.splitlines()[:6]])
def test_no_summary_is_told(lines):
    with pytest.raises(UnreadableError):
        parse_report(lines)


NEW = {
    "startEnqMs": 1.01, "endEnqMs": 1.02, "startH2dMs": 1.0, "endH2dMs": 1.25,
    "startComputeMs": 1.25, "endComputeMs": 2.25, "startD2hMs": 2.25, "endD2hMs": 2.75,
    "h2dMs": 0.25, "computeMs": 1.0, "d2hMs": 0.5, "latencyMs": 1.75,
}  # fmt: skip
OLD = {
    "startInMs": 1.0, "endInMs": 1.25, "startComputeMs": 1.25, "endComputeMs": 2.25,
    "startOutMs": 2.25, "endOutMs": 2.75, "inMs": 0.25, "computeMs": 1.0, "outMs": 0.5,
    "latencyMs": 1.75, "endToEndMs": 1.75,
}  # fmt: skip
BARE = {"startComputeMs": 1.0, "computeMs": 1.75}


@pytest.mark.parametrize("names", [NEW, OLD], ids=["new", "old"])
def test_times_of_both_names(names):
    """Old and new names of the copies give the same record; the order is that of time."""
    later = {**names, "startH2dMs": 3.0, "startInMs": 3.0}
    lines = ["[", f"  {json.dumps(later)}", f", {json.dumps(names)}", "]"]
    times = parse_times(lines)
    assert list(times.start_ns) == [1_000_000, 3_000_000]
    assert list(times.latency_ns) == [1_750_000] * 2
    assert {stage: column[0] for stage, column in times.stages_ns.items()} == {
        "h2d": 250_000,
        "compute": 1_000_000,
        "d2h": 500_000,
    }
    assert list(parse_times(lines, queries=1).start_ns) == [3_000_000]
    assert list(parse_times(lines, count=1).start_ns) == [1_000_000]
    assert parse_times(lines, queries=9) == times


def test_times_without_copies():
    times = parse_times([json.dumps(BARE)])
    assert list(times.latency_ns) == [1_750_000] == list(times.stages_ns["compute"])


@pytest.mark.parametrize("text", ["", "[\n]", "[", "{}", "3", '{"startH2dMs": 1}', '{"a"'])
def test_what_is_no_times_is_refused(text):
    with pytest.raises(UnreadableError):
        parse_times(text.splitlines())


@given(st.lists(st.text() | st.builds("[I] {}: {}".format, st.text(), st.text())))
def test_no_text_is_fatal(lines):
    with contextlib.suppress(UnreadableError):
        parse_report(["=== Performance summary ===", "Throughput: 1 qps", *lines])
    with contextlib.suppress(UnreadableError):
        parse_times(lines)
    reason_in(lines)
    version_in(lines)
    context_bytes_in(lines)
    options_in("\n".join(lines))


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], None),
        (["[I] fine", "[W] not so fine"], None),
        (["[E] Engine set up failed"], "Engine set up failed"),
        (["[E] Unknown option: --x 3", "&&&& FAILED"], "Unknown option: --x 3"),
        (
            ["[11/20/2025-08:32:52] [E] Error[2]: [a::1] wrong", "[E] Building engine failed"],
            "Error[2]: [a::1] wrong",
        ),
        (["[E] [TRT] In function x:", "[6] bad node", "[E] Failed to parse onnx file"],
         "In function x: [6] bad node"),
    ],
)  # fmt: skip
def test_reason_is_the_telling_one(lines, reason):
    assert reason_in(lines) == reason


# What releases print after each failed build or load.
AFTER_BUILD = [
    "[E] Error[2]: [builder.cpp::buildSerializedNetwork::636] Error Code 2: Internal Error"
    " (Assertion engine != nullptr failed. )",
    "[E] Engine could not be created from network",
    "[E] Building engine failed",
    "[E] Failed to create engine from model or file.",
    "[E] Engine set up failed",
    "&&&& FAILED TensorRT.trtexec [TensorRT v8401] # trtexec --onnx=model.onnx",
]
AFTER_LOAD = [
    "[E] Error[4]: [runtime.cpp::deserializeCudaEngine::66] Error Code 4: Internal Error"
    " (Engine deserialization failed.)",
    "[E] Engine deserialization failed",
    "[E] Got invalid engine!",
    "[E] Inference set up failed",
]
NO_KERNEL = (
    "Error[10]: [optimizer.cpp::computeCosts::3728] Error Code 10: Internal Error (Could not find"
    " any implementation for node {ForeignNode[Conv_0...Relu_8]}.)"
)
# Made after the public reports that the name of each gives.
FAILURES = {
    "8.5 on a Xavier NX: no implementation": (NO_KERNEL, AFTER_BUILD),
    "8.5 on an Orin: no implementation": (
        NO_KERNEL.replace("Error[10]", "10"), AFTER_BUILD
    ),
    "8.4: a program that the DLA does not take": (
        "Error[1]: [nvdlaUtils.cpp::submit::198] Error Code 1: DLA (Failure to submit program to"
        " DLA engine.)",
        ["[E] Error occurred during inference"],
    ),
    "8.5: direct IO without an implementation": (
        "Error[10]: [optimizer.cpp::computeCosts::3728] Error Code 10: Internal Error (Could not"
        " find any implementation for node Reformatting CopyNode for Input Tensor 0 with"
        " DIRECT_IO.)",
        AFTER_BUILD,
    ),
    "8.6: an engine of another release": (
        "Error[1]: [stdArchiveReader.cpp::StdArchiveReader::32] Error Code 1: Serialization"
        " (Serialization assertion magicTagRead == kMAGIC_TAG failed.Magic tag does not match)",
        AFTER_LOAD,
    ),
    "7.1: a network that is refused": (
        "[TRT] Network must have at least one output",
        ["[E] Engine creation failed", "[E] Engine set up failed"],
    ),
    "8.0 on a Nano: a layer that no DLA has": (
        "[TRT] Default DLA is enabled but layer conv1 is not supported on DLA and falling back to"
        " GPU is not enabled.",
        AFTER_BUILD,
    ),
}  # fmt: skip


REMARK = (
    "[E] Error[3]: [builderConfig.cpp::setFlag::65] Error Code 3: API Usage Error (Parameter check"
    " failed at: optimizer/api/builderConfig.cpp::setFlag::65, condition: a."
)


@pytest.mark.parametrize(("cause", "after"), FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("before", [[], [REMARK]])
def test_reason_is_the_cause_and_not_what_follows_from_it(cause, after, before):
    lines = [*before, f"[04/22/2024-19:51:27] [E] {cause}", *after]
    assert reason_in(lines) == message_of(cause)
    errors = [line for line in lines if "[E] " in line]
    assert cause_of([message_of(line) for line in errors]) == message_of(cause)


def test_reason_of_a_public_log_is_the_assertion_of_the_dla():
    lines = (CASES / "trtexec_8.4.1_not_all_on_dla.log").read_text(encoding="utf-8").splitlines()
    assert "isDLA(n->backend)" in reason_in(lines)


def test_timing_cache_that_is_not_used_is_no_reason():
    lines = ["[E] no such file", "[E] myelinCache: CRC mismatch, timing cache will not be used"]
    assert reason_in([*lines, *AFTER_BUILD]) == "no such file"


def test_bracket_that_ends_a_message_is_no_reason():
    assert cause_of(["API Usage Error (Parameter check failed", ")", "Engine set up failed"]) == (
        "API Usage Error (Parameter check failed"
    )


def test_consequence_alone_is_better_than_nothing():
    assert "engine != nullptr" in reason_in(AFTER_BUILD[:1])


def test_versions_and_memory():
    """The version is named in words or in a tag of digits; memory is in mebibytes."""
    assert version_in(["[I] TensorRT version: 10.3.0"]) == "10.3.0"
    assert version_in(["&&&& RUNNING TensorRT.trtexec [TensorRT v8510] # trtexec"]) == "8.5.10"
    assert version_in(["&&&& RUNNING TensorRT.trtexec [TensorRT v101601] [b11] #"]) == "10.16.1"
    assert version_in(["TensorRT"]) is None
    created = "[I] Created execution context with device memory size: {} MiB"
    assert context_bytes_in([created.format(7.5)]) == 7_864_320
    assert context_bytes_in([created.format("?")]) is context_bytes_in([]) is None
    assert message_of("[TRT] [I] a: b") == "a: b"


def test_options_are_those_that_begin_a_line():
    assert options_in(HELP_86) == {
        *("--fp16", "--int8", "--buildOnly", "--streams", "--help"),
        *("--noDataTransfers", "--useCudaGraph"),
    }
    gone = "  --useCudaGraph   [Deprecated] Now the default.\n      This flag is a no-op.\n  --x\n"
    assert options_in(gone) == {"--x"}


OFFERED_86 = options_in(HELP_86)
OFFERED_11 = frozenset(
    {
        *("--noCudaGraph", "--includeDataTransfers", "--noSpinWait", "--infStreams"),
        *("--skipInference", "--exposeDMA", "--profilingVerbosity", "--exportLayerInfo"),
    }
)


def order(**changes):
    fields = {"run_id": "r", "backend": "trtexec", "device": "gpu", "model_directory": ""}
    return Order.model_validate({**fields, **changes})


def build(offered, shapes=None, **changes):
    return build_arguments(offered, order(**changes), shapes or {}, "m", "p", "l")[2:]


def run(offered, **changes):
    chosen = run_arguments(offered, order(duration_seconds=10.0, **changes), {}, "p", "t")
    assert chosen[-4:-2] == ["--warmUp=1000", "--duration=10"]
    return chosen[1:-4]


def test_a_build_asks_for_what_there_is():
    """Types are asked for where they can be; the way to stop after the build has two names."""
    assert build(OFFERED_86) == ["--fp16", "--buildOnly"]
    assert build(OFFERED_86, precision="int8") == ["--int8", "--fp16", "--buildOnly"]
    assert build(OFFERED_86, precision="fp32") == ["--buildOnly"]
    told = ["--skipInference", "--profilingVerbosity=detailed", "--exportLayerInfo=l"]
    assert build(OFFERED_11) == build(OFFERED_11, precision="int8") == told
    assert chooses_types(OFFERED_86, "int8")
    assert not chooses_types(OFFERED_11, "fp16")
    shapes = {"a": (4, 3, 8), "b": (4,)}
    assert build(OFFERED_86, shapes=shapes)[0] == "--shapes=a:4x3x8,b:4"


def test_a_dla_is_asked_for_by_its_core():
    """Only a policy that forbids it keeps every layer, reformats too, off the GPU."""
    assert build(OFFERED_86, device="dla1")[0] == "--useDLACore=1"
    assert "--allowGPUFallback" in build(OFFERED_86, device="dla0", fallback="allow")
    assert "--allowGPUFallback" in build(OFFERED_86, device="dla0", fallback="require-pure")
    assert "--allowGPUFallback" not in build(OFFERED_86, device="dla0", fallback="forbid")
    assert "--allowGPUFallback" not in build(OFFERED_86)


def test_a_run_turns_defaults_to_what_is_wanted():
    """Graph, copies, spinning and streams are the same in 8 and 11, by different arguments."""
    assert run(OFFERED_86) == ["--useCudaGraph"]
    assert run(OFFERED_11) == ["--includeDataTransfers", "--noSpinWait", "--exposeDMA"]
    assert run(OFFERED_86, cuda_graph=False, transfers=False) == ["--noDataTransfers"]
    plain = run(OFFERED_11, cuda_graph=False, transfers=False)
    assert plain == ["--noCudaGraph", "--noSpinWait", "--exposeDMA"]
    assert run(OFFERED_86, device="dla0") == ["--useDLACore=0"]
    assert "--noCudaGraph" in run(OFFERED_11, device="dla0")
    assert run(OFFERED_86, streams=3)[-1] == "--streams=3"
    assert run(OFFERED_11, streams=3)[-1] == "--infStreams=3"
    counted = run_arguments(OFFERED_11, order(count=7), {}, "p", "t")
    assert counted[-3:] == ["--duration=0", "--iterations=7", "--exportTimes=t"]
