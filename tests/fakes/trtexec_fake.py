"""A trtexec without TensorRT: ``trtexec_fake.py VERSION ARGUMENTS`` takes and prints what one does.

Options, defaults, words and files are those that public sources show of 8.6, 10 and 11; an option
that a version does not know ends it. ``FAKE_TRTEXEC`` names what is to go wrong, words apart.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

COMMON = (
    *("--onnx", "--saveEngine", "--loadEngine", "--shapes", "--useDLACore", "--allowGPUFallback"),
    *(
        "--minShapes",
        "--optShapes",
        "--maxShapes",
        "--profilingVerbosity",
        "--exportLayerInfo",
        "--exportTimes",
        "--iterations",
        "--duration",
    ),
    *("--warmUp", "--noDataTransfers", "--useCudaGraph", "--useSpinWait", "--exposeDMA"),
    *("--infStreams", "--skipInference", "--verbose", "--help"),
)
_TYPES = ("--fp16", "--int8", "--calib", "--precisionConstraints", "--layerPrecisions")
OPTIONS = {
    "8.5": ({*COMMON, *_TYPES, "--streams", "--buildOnly", "--plugins"})
    - {"--infStreams", "--skipInference"},
    "8.6": {*COMMON, *_TYPES, "--best", "--staticPlugins", "--dynamicPlugins"},
    "10.3": {*COMMON, *_TYPES, "--best", "--stronglyTyped", "--staticPlugins"},
    "11.3": {*COMMON, "--stronglyTyped", "--noCudaGraph", "--includeDataTransfers", "--noSpinWait"},
}
NO_OPS = {"--noDataTransfers", "--useCudaGraph", "--useSpinWait", "--stronglyTyped"}
TAGS = {"8.5": "v8502", "8.6": "v8602", "10.3": "v100300", "11.3": "v110300"}
TROUBLE = os.environ.get("FAKE_TRTEXEC", "").split()
DLA_LAYER, GPU_LAYER = "{ForeignNode[stem...stage4.relu]}", "pool"


def say(text, severity="I"):
    stream = sys.stdout if severity in "IV" else sys.stderr
    print(f"[11/21/2026-09:14:54] [{severity}] {text}", file=stream, flush="held" not in TROUBLE)


def end(is_good):
    word = "PASSED" if is_good else "FAILED"
    print(f"&&&& {word} TensorRT.trtexec [TensorRT {TAGS[version]}] # {' '.join(sys.argv)}")
    sys.exit(0 if is_good else 1)


def give_help():
    print("=== Build and Inference Options ===")
    for name in sorted(OPTIONS[version]):
        if version == "11.3" and name in NO_OPS:
            print(f"  {name:26}[Deprecated] This is now the default. This flag is a no-op.")
        else:
            print(f"  {name:26}Words about it (default = disabled), see also --fp16")
            print(f"{'':28}--best and --noCudaGraph are told of here as well.")
    end(True)


def build(given):
    core = given.get("--useDLACore")
    if core is not None and "no-dla" in TROUBLE:
        for text in (
            *("Cannot create DLA engine, 0 not available", "Network And Config setup failed"),
            *("Building engine failed", "Engine set up failed"),
        ):
            say(text, "E")
        end(False)
    if "bad-model" in TROUBLE:
        say("[TRT] ModelImporter.cpp:776: --- End node ---", "E")
        say("[TRT] ModelImporter.cpp:779: ERROR: In function parseGraph:", "E")
        print("[6] Invalid Node - Pad_13", file=sys.stderr)
        say("Failed to parse onnx file", "E")
        say("Engine set up failed", "E")
        end(False)
    if "no-plugin" in TROUBLE:
        for name in ("Found", "Lost"):
            say(f"[TRT] No importer registered for op: {name}. Attempting to import as plugin.")
        say('[TRT] ModelImporter.cpp:771: While parsing node number 5 [Lost -> "y"]:', "E")
        say('[TRT] [8] Assertion failed: creator && "Plugin not found, are the plugin name …"', "E")
        say("Failed to parse onnx file", "E")
        end(False)
    if "no-gpu" in TROUBLE:
        say("[TRT] CUDA initialization failure with error: 35", "W")
        say("Engine set up failed", "E")
        end(False)
    type_ = "FP16" if "--fp16" in given or "typed" in TROUBLE else "FP32"
    if "--calib" in given:
        with Path(given["--calib"]).open() as file:
            # Another header is ignored, as by the library.
            if next(file).strip() == f"TRT-{TAGS[version][1:]}-EntropyCalibration2":
                type_ = "Int8"
    held = {}
    if "--precisionConstraints" in given:
        pairs = given.get("--layerPrecisions", "").split(",")
        held = {pair.rpartition(":")[0]: pair.rpartition(":")[2].upper() for pair in pairs}
    layers = [("reformat 0", "Reformat"), (DLA_LAYER, "DLA" if core else "Myelin")]
    if core is None or ("--allowGPUFallback" in given and "pure" not in TROUBLE):
        layers.append((GPU_LAYER, "CaskPooling"))
    say("[TRT] ---------- Layers Running on DLA ----------")
    if core is not None:
        say(f"[TRT] [DlaLayer] {DLA_LAYER}")
    say("[TRT] ---------- Layers Running on GPU ----------")
    say("[TRT] Formats and tactics selection, told only when talkative", "V")
    if layers[-1][0] == GPU_LAYER:
        say(f"[TRT] [GpuLayer] POOLING: {GPU_LAYER}")
    with Path(given["--exportLayerInfo"]).open("w") as file:
        listed = []
        for name, kind in layers:
            own = held.get(name, type_)
            tensor = {"Name": "x", "Format/Datatype": f"Row major linear {own}"}
            if version == "11.3":
                tensor = {"Name": "x", "Format": "Row major linear", "DataType": own}
            listed.append({"Name": name, "LayerType": kind, "Outputs": [tensor]})
        json.dump({"Layers": listed, "Metadata": "a\x1eb"}, file)
    with Path(given["--onnx"]).open("rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    with Path(given["--saveEngine"]).open("w") as file:
        file.write(f"plan of {digest}")
    say("Engine built in 3.2 sec.")
    end(True)


def row(start_ms, h2d_ms, compute_ms, d2h_ms):
    ends = [start_ms + h2d_ms, start_ms + h2d_ms + compute_ms]
    figures = {
        "startEnqMs": start_ms, "endEnqMs": start_ms + 0.01,
        "startH2dMs": start_ms, "endH2dMs": ends[0],
        "startComputeMs": ends[0], "endComputeMs": ends[1],
        "startD2hMs": ends[1], "endD2hMs": ends[1] + d2h_ms,
        "h2dMs": h2d_ms, "computeMs": compute_ms, "d2hMs": d2h_ms,
        "latencyMs": h2d_ms + compute_ms + d2h_ms,
    }  # fmt: skip
    return "{ " + ", ".join(f'"{name}" : {value:.6g}' for name, value in figures.items()) + " }"


def measure(given):
    with Path(given["--loadEngine"]).open() as file:
        if not file.read().startswith("plan of ") or "bad-plan" in TROUBLE:
            say("Error[1]: Serialization assertion plan->header.magicTag failed.", "E")
            say("Engine deserialization failed", "E")
            say("Got invalid engine!", "E")
            end(False)
    say("Engine deserialized in 0.0123 sec.")
    say("Created execution context with device memory size: 7.5 MiB")
    if version == "11.3":
        copies, graph = "--includeDataTransfers" in given, "--noCudaGraph" not in given
    else:
        copies, graph = "--noDataTransfers" not in given, "--useCudaGraph" in given
    say(f"copies {copies}, graph {graph}, spin {version == '11.3' and '--noSpinWait' not in given}")
    if graph and "no-graph" in TROUBLE:
        say("CUDA graph capture failed. It will be launched without using CUDA graph.", "W")
    say("Starting inference")
    warm_up_ms, least = float(given["--warmUp"]), int(given["--iterations"])
    parts = (0.1, 0.8, 0.1) if copies else (0.0, 0.8, 0.0)
    whole = sum(parts)
    if "dies" in TROUBLE:
        say("Cuda failure: an illegal memory access was encountered", "E")
        say("Error occurred during inference", "E")
        end(False)
    if "hang" in TROUBLE:
        time.sleep(600)
    time.sleep(warm_up_ms / 1e3 + float(given["--duration"]))
    count = max(least, int(float(given["--duration"]) * 1e3 / whole))
    warm_ups = int(warm_up_ms / whole) + 1
    rows = [row(i * whole, *parts) for i in range(warm_ups + count)]
    say(f"Warmup completed {warm_ups} queries over {warm_up_ms:g} ms")
    say(f"Timing trace has {count} queries over {count * whole / 1e3:.6g} s")
    figures = ", ".join(f"{name} = {whole:.6g} ms" for name in ("min", "max", "mean", "median"))
    say("=== Performance summary ===")
    if "no-summary" not in TROUBLE:
        say(f"Throughput: {1e3 / whole:.6g} qps")
        say(f"Latency: {figures}, percentile(99%) = {whole:.6g} ms")
        say(f"GPU Compute Time: {figures}")
        say("* Throughput may be bound by Enqueue Time rather than GPU Compute.", "W")
    if "no-times" not in TROUBLE:
        kept = rows if "exports-warm-up" in TROUBLE else rows[warm_ups:]
        with Path(given["--exportTimes"]).open("w") as file:
            file.write("[\n" + "".join(f"{', ' if i else '  '}{r}\n" for i, r in enumerate(kept)))
            file.write("]\n")
    end(True)


version = sys.argv[1]
if "garbage" in TROUBLE:
    print("\x00\xff no such thing\n" * 3)
    sys.exit(0)
if "no-library" in TROUBLE:
    sys.exit("trtexec: error while loading shared libraries: libnvinfer.so.8: cannot open it")
given = dict(one.partition("=")[::2] for one in sys.argv[2:])
print(
    f"&&&& RUNNING TensorRT.trtexec [TensorRT {TAGS[version]}] # {' '.join(sys.argv)}", flush=True
)
if "--help" in given:
    give_help()
unknown = set(given) - OPTIONS[version]
for name in sorted(unknown):
    say(f"Unknown option: {name} {given[name]}", "E")
step = "builds-with" if "--onnx" in given else "measures-with"
is_lacking = {"needs", step} & {*TROUBLE} and TROUBLE[-1] not in sys.argv
if unknown or is_lacking:
    end(False)
(build if "--onnx" in given else measure)(given)
