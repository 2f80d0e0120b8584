"""The rule for causes, one condition at a time: named in its direction only, and in its order."""

import pytest

from tegrascope.daemon.measure.report import Environment, Figure
from tegrascope.parsers.inference.events import Process
from tegrascope.parsers.inference.placement import Built, Circumstances, Placement
from tegrascope.workbench.compare.causes import causes_of
from tegrascope.workbench.compare.report import compare
from tegrascope.workbench.compare.sides import MeasuredContext, Side, refusal


def side(label="A", device="gpu", figures=None, model="net.onnx", sha=None, **conditions):
    found = {"latency": Figure(value=1e-3), **(figures or {})}
    return Side(label, label, model, device, found, MeasuredContext(**conditions), sha)


def named(good, bad, cost="inference"):
    return [(one.name, one.certainty) for one in causes_of(good, bad, cost)]


def board(**facts):
    return {"environment": Environment(**facts)}


KNOWN, POSSIBLE = "known_direction", "possible"
CPU_BUSY = {"background": {"cpu": 0.5}}
CPU_FREE = {"background": {"cpu": 0.02}}
EMC_FAST = {"clocks_hertz": {"gpu": 1e9, "emc": 3e9}}
EMC_SLOW = {"clocks_hertz": {"gpu": 1e9, "emc": 2e9}}
LOCKED, FREE = board(clocks_locked=True), board(clocks_locked=False)


def built(**facts):
    return {"built": Built(**facts)}


def made(**facts):
    return built(circumstances=Circumstances(**{"is_alone": True, **facts}))


FP16, SOME_FP32 = built(requested_precision="fp16"), built(layer_types={"fp16": 5, "fp32": 4})
SCARCE = {"free_memory_bytes": 1 << 30, "wanted_memory_bytes": 2 << 30}
DLA_LAYERS = Placement(verdict="pure_dla", dla_layers=("a",))
MIXED = Placement(verdict="mixed", dla_layers=("a",), gpu_layers=("b",))


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        ({"batch": 1}, {"batch": 4}, ("batch", KNOWN)),
        (built(streams=1), built(streams=2), ("streams", KNOWN)),
        (built(has_transfers=False), built(has_transfers=True), ("transfers", KNOWN)),
        (built(has_cuda_graph=True), built(has_cuda_graph=False), ("cuda_graph", KNOWN)),
        ({"optimization_level": 3}, {"optimization_level": 0}, ("optimization_level", KNOWN)),
        (built(requested_precision="int8"), FP16, ("precision", KNOWN)),
        (built(layer_types={"fp16": 9}), SOME_FP32, ("precision", KNOWN)),
        ({"clocks_hertz": {"gpu": 1e9}}, {"clocks_hertz": {"gpu": 9e8}}, ("clocks", KNOWN)),
        (EMC_FAST, EMC_SLOW, ("clocks", KNOWN)),
        (LOCKED, FREE, ("clocks", POSSIBLE)),
        ({}, {"throttled_ratio": 0.5}, ("throttling", KNOWN)),
        ({"background": {"gpu": 0.0}}, {"background": {"gpu": 0.5}}, ("contention", KNOWN)),
        (CPU_FREE, CPU_BUSY, ("contention", KNOWN)),
        ({"others_cores": 0.1}, {"others_cores": 1.5}, ("contention", KNOWN)),
        ({}, {"disturbed": ("overlapped",)}, ("contention", KNOWN)),
        ({"others_gpu": 0.01}, {"others_gpu": 0.5}, ("contention", KNOWN)),
        (made(), made(is_alone=False), ("build_circumstances", POSSIBLE)),
        (made(), made(**SCARCE), ("build_circumstances", POSSIBLE)),
        (made(load_average=1.0), made(load_average=9.0), ("build_circumstances", POSSIBLE)),
    ],
)  # fmt: skip
def test_a_cause_is_named_in_its_direction_only(good, bad, expected):
    assert named(side("A", **good), side("B", **bad)) == [expected]
    assert named(side("A", **bad), side("B", **good)) == []


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        ({"backend": "tensorrt"}, {"backend": "trtexec"}, "back_end"),
        (board(gpu_uuid="GPU-1"), board(gpu_uuid="GPU-2"), "method"),
        ({"process": Process(nice=5)}, {}, "method"),
        ({"process": Process(cpus=(4,))}, {}, "method"),
        (board(jetpack="6.0"), board(jetpack="6.2"), "versions"),
        (board(l4t="36.3"), board(l4t="36.4"), "versions"),
        (board(versions={"tensorrt": "8.6"}), board(versions={"tensorrt": "10.3"}), "versions"),
        (board(power_mode="15W"), board(power_mode="MAXN"), "power_mode"),
    ],
)
def test_what_has_no_direction_is_possible_either_way(one, other, name):
    for good, bad in ((one, other), (other, one)):
        assert named(side("A", **good), side("B", **bad)) == [(name, POSSIBLE)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"clocks_hertz": {"gpu": 1e9}}, {"clocks_hertz": {"gpu": 9.9e8}}),
        (
            {"clocks_hertz": {"gpu": 1e9, "cpu": 2e9}},
            {"clocks_hertz": {"gpu": 1e9, "cpu": 1e9}},
        ),
        (built(layer_types={"fp16": 50}), built(layer_types={"fp16": 49, "fp32": 1})),
        ({"background": {"cpu": 0.02, "gpu": 0.0}}, {"background": {"cpu": 0.15, "gpu": 0.04}}),
        ({"background": {}}, {"background": {"cpu": 0.9, "gpu": 0.9}}),
        ({"others_cores": 0.0}, {"others_cores": 0.4}),
        ({"hottest_celsius": 50.0}, {"hottest_celsius": 90.0}),
        (made(load_average=0.5), made(load_average=2.0)),
        (built(has_cuda_graph=None), built(has_cuda_graph=False)),
        (built(has_transfers=None), built(has_transfers=True)),
        (built(memory=None), built(memory="copy")),
        ({"optimization_level": None}, {"optimization_level": 0}),
        (board(jetpack=None), board(jetpack="6.2")),
        (board(telemetry_source="nvml"), board(telemetry_source="tegrastats")),
        (board(telemetry_interval_seconds=0.1), board(telemetry_interval_seconds=1.0)),
    ],
)
def test_small_and_unknown_differences_are_not_causes_of_time(one, other):
    assert named(side("A", **one), side("B", **other)) == []


def test_other_memory_is_a_possible_cause_and_not_named_as_missing_copies():
    copied = built(has_transfers=True, memory="copy")
    mapped = built(has_transfers=False, memory="mapped")
    [cause] = causes_of(side("A", **mapped), side("B", **copied), "inference")
    assert (cause.name, cause.certainty) == ("memory", POSSIBLE)
    assert cause.sentence == "memory of inputs and outputs: copy in B, mapped in A"
    assert named(side("A", **copied), side("B", **mapped)) == [("memory", POSSIBLE)]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"hottest_celsius": 50.0}, {"hottest_celsius": 61.0}, [("heat", POSSIBLE)]),
        ({"hottest_celsius": 61.0}, {"hottest_celsius": 50.0}, []),
        ({"batch": 8}, {"batch": 1}, [("batch", KNOWN)]),
        ({"batch": 1}, {"batch": 8}, []),
        (LOCKED, FREE, [("clocks", POSSIBLE)]),
        ({"clocks_hertz": {"gpu": 1e9}}, {"clocks_hertz": {"gpu": 5e8}}, []),
        (board(power_reading="instant"), board(power_reading="usage"), [("method", POSSIBLE)]),
        (board(telemetry_source="nvml"), board(telemetry_source="replay"), [("method", POSSIBLE)]),
    ],
)
def test_energy_has_its_own_directions(one, other, expected):
    assert named(side("A", **one), side("B", **other), "energy") == expected


def test_fallback_counts_for_engines_of_a_dla_with_known_placement():
    def on(device, placement):
        return side(device=device, **built(placement=placement))

    assert named(on("dla0", DLA_LAYERS), on("dla0", MIXED)) == [("fallback", KNOWN)]
    assert named(on("dla0", MIXED), on("dla0", DLA_LAYERS)) == []
    assert named(on("dla0", MIXED), on("dla0", MIXED)) == []
    assert named(on("dla0", Placement()), on("dla0", MIXED)) == []
    assert named(on("gpu", DLA_LAYERS), on("gpu", MIXED)) == []


def test_the_order_is_that_of_the_weights_and_the_possible_is_last():
    good = side(
        "A",
        clocks_hertz={"gpu": 1e9},
        optimization_level=3,
        backend="tensorrt",
        **built(requested_precision="int8", has_cuda_graph=True),
    )
    bad = side(
        "B",
        batch=2,
        clocks_hertz={"gpu": 9e8},
        optimization_level=0,
        backend="trtexec",
        disturbed=("overlapped",),
        **built(requested_precision="fp16", has_cuda_graph=False),
    )
    assert [name for name, _ in named(good, bad)] == [
        "batch",
        "optimization_level",
        "precision",
        "contention",
        "clocks",
        "cuda_graph",
        "back_end",
    ]


def test_a_rate_and_an_energy_suffer_from_a_smaller_batch():
    for cost in ("input", "energy"):
        assert named(side("A", batch=4), side("B", batch=1), cost) == [("batch", KNOWN)]
        assert named(side("A", batch=1), side("B", batch=4), cost) == []


def test_the_sentence_names_the_clocks_that_are_lower():
    good = side("A", clocks_hertz={"gpu": 1e9, "emc": 2e9})
    bad = side("B", clocks_hertz={"gpu": 1e9, "emc": 1e9}, throttled_ratio=0.5)
    [cause] = causes_of(good, bad, "inference")
    assert cause.name == "throttling"
    assert cause.sentence.endswith("; emc clock 1000 MHz in B, 2000 MHz in A")


def test_known_clocks_that_are_equal_rule_out_throttling_and_mode():
    good = side("A", clocks_hertz={"gpu": 1e9}, **board(power_mode="MAXN"))
    bad = side("B", clocks_hertz={"gpu": 1e9}, throttled_ratio=0.5, **board(power_mode="15W"))
    assert named(good, bad) == []


def test_a_difference_is_explained_from_two_per_cent_on():
    def at(value, half, label, **conditions):
        figure = Figure.around(value, half)
        return side(label, figures={"latency": figure}, **conditions)

    def first(value, half):
        found = compare([at(1.0, half, "A")], [at(value, half, "B", batch=2)])
        return found.pairs[0].figures[0]

    assert (first(1.015, 0.001).verdict, first(1.015, 0.001).causes) == ("worse", ())
    assert [one.name for one in first(1.03, 0.001).causes] == ["batch"]
    assert (first(1.03, 0.05).verdict, first(1.03, 0.05).causes) == ("no_difference", ())
    assert (first(1.04, None).verdict, first(1.04, None).causes) == ("unclear", ())
    assert [one.name for one in first(1.06, None).causes] == ["batch"]


def test_the_interval_of_a_ratio_agrees_with_that_of_the_difference():
    def ratio(b, half_b, a, half_a):
        figures = [Figure.around(a, half_a), Figure.around(b, half_b)]
        sides = [side(n, figures={"throughput": one}) for n, one in zip("AB", figures, strict=True)]
        return compare(sides[:1], sides[1:]).pairs[0].figures[1].ratio

    known = ratio(90.0, 3.0, 100.0, 4.0)
    # An exact denominator scales the interval; two uncertain figures are Fieller's case.
    assert ratio(90.0, 3.0, 100.0, 0.0).low == pytest.approx(0.87)
    for end in (known.low, known.high):
        assert abs(90.0 - end * 100.0) == pytest.approx((3.0**2 + (end * 4.0) ** 2) ** 0.5)
    # Half of A could be missing: its interval reaches far above.
    assert ratio(40.0, 1.0, 100.0, 50.0).high == pytest.approx(0.8, rel=0.01)
    assert ratio(40.0, 1.0, 100.0, 100.0).low is None


def test_what_works_against_a_difference_is_named_unless_it_is_only_possible():
    fast = side("A", figures={"latency": Figure(value=1.0)}, batch=4, backend="tensorrt")
    slow = side("B", figures={"latency": Figure(value=2.0)}, backend="trtexec")
    [latency] = compare([fast], [slow]).pairs[0].figures
    assert [one.name for one in latency.causes] == ["back_end"]
    assert latency.opposed == ("batch",)


def test_models_without_a_digest_are_compared_by_name():
    assert refusal(side(), side("B", model="models/net.onnx"), across=False) is None
    reason = refusal(side(), side("B", model="other.onnx", sha="ab"), across=False)
    assert reason == "different models, as far as their names show: net and other"
    reason = refusal(side(sha="ab"), side("B", model="renamed.onnx", sha="ab"), across=False)
    assert reason is None


def test_settings_tell_several_measurements_of_a_model_apart():
    def point(label, variant):
        return Side(
            label, label, "net.onnx", "gpu", {"latency": Figure(value=1.0)}, variant=variant
        )

    here = [point("A", "batch 2"), point("A", "batch 4")]
    found = compare(here, [point("B", "batch 4"), point("B", "batch 8")])
    assert [(one.variant_a, one.variant_b) for one in found.pairs] == [("batch 4", "batch 4")]
    assert [one.reason for one in found.refused] == ["only in A", "only in B"]


def test_work_of_others_is_named_with_what_showed_it():
    bad = side(
        "B",
        disturbed=("baseline_disturbed",),
        disturbance="the GPU was 97% busy in an idle phase, by another program",
        others_gpu=0.48,
        others_on_gpu=("python3 hog.py",),
    )
    (cause,) = causes_of(side("A"), bad, "energy")
    assert cause.sentence == (
        "B has the flag baseline_disturbed (the GPU was 97% busy in an idle phase, by another"
        " program); python3 hog.py kept the GPU 48.0 % busy during B"
    )
