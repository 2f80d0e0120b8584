"""The rule for causes, one condition at a time: named in its direction only, and in its order."""

import pytest

from tegrascope.daemon.measure.report import Environment, Figure
from tegrascope.parsers.inference.events import Process
from tegrascope.parsers.inference.placement import Built, Circumstances, Placement
from tegrascope.workbench.compare.causes import causes_of
from tegrascope.workbench.compare.report import compare
from tegrascope.workbench.compare.sides import MeasuredContext, Side, refusal

GROWN = {"copies": 1e-4, "compute": 2e-3, "host": 1e-4}
SHORT = {"copies": 1e-4, "compute": 1e-3, "host": 1e-4}


def side(label="A", device="gpu", figures=None, model="net.onnx", sha=None, **conditions):
    found = {"latency": Figure(value=1e-3), **(figures or {})}
    return Side(label, label, model, device, found, MeasuredContext(**conditions), sha)


def named(good, bad, cost="inference", ratio=1.5):
    return [(one.name, one.certainty) for one in causes_of(good, bad, cost, ratio)]


def board(**facts):
    return {"environment": Environment(**facts)}


KNOWN, POSSIBLE, MOST = "known_direction", "possible", "at_most"
CPU_BUSY = {"background": {"cpu": 0.5}}
CPU_FREE = {"background": {"cpu": 0.02}}
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
        ({"batch": 1}, {"batch": 4}, ("batch", MOST)),
        (built(streams=1), built(streams=2), ("streams", MOST)),
        (built(has_transfers=False), built(has_transfers=True), ("transfers", KNOWN)),
        (built(has_cuda_graph=True), built(has_cuda_graph=False), ("cuda_graph", KNOWN)),
        ({"optimization_level": 3}, {"optimization_level": 0}, ("optimization_level", KNOWN)),
        (built(requested_precision="int8"), FP16, ("precision", KNOWN)),
        (built(layer_types={"fp16": 9}), SOME_FP32, ("precision", KNOWN)),
        ({"clocks_hertz": {"gpu": 1e9}}, {"clocks_hertz": {"gpu": 9e8}}, ("clocks", MOST)),
        (LOCKED, FREE, ("clocks", POSSIBLE)),
        ({}, {"throttled_ratio": 0.5}, ("throttling", KNOWN)),
        ({"background": {"gpu": 0.0}}, {"background": {"gpu": 0.5}}, ("contention", KNOWN)),
        (CPU_FREE, CPU_BUSY, ("contention", KNOWN)),
        ({"others_cores": 0.1}, {"others_cores": 1.5}, ("contention", KNOWN)),
        ({}, {"disturbed": ("overlapped",)}, ("contention", KNOWN)),
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
        (built(layer_types={"fp16": 50}), built(layer_types={"fp16": 49, "fp32": 1})),
        ({"background": {"cpu": 0.02, "gpu": 0.0}}, {"background": {"cpu": 0.15, "gpu": 0.04}}),
        ({"background": {}}, {"background": {"cpu": 0.9, "gpu": 0.9}}),
        ({"others_cores": 0.0}, {"others_cores": 0.4}),
        ({"hottest_celsius": 50.0}, {"hottest_celsius": 90.0}),
        (made(load_average=0.5), made(load_average=2.0)),
        (built(has_cuda_graph=None), built(has_cuda_graph=False)),
        (built(has_transfers=None), built(has_transfers=True)),
        ({"optimization_level": None}, {"optimization_level": 0}),
        (board(jetpack=None), board(jetpack="6.2")),
        (board(telemetry_source="nvml"), board(telemetry_source="tegrastats")),
        (board(telemetry_interval_seconds=0.1), board(telemetry_interval_seconds=1.0)),
    ],
)
def test_small_and_unknown_differences_are_not_causes_of_time(one, other):
    assert named(side("A", **one), side("B", **other)) == []


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
def test_energy_has_its_own_directions_and_no_shares(one, other, expected):
    good, bad = side("A", **one), side("B", **other)
    assert named(good, bad, "energy") == expected
    assert [one.share for one in causes_of(good, bad, "energy", 1.5)] == [None] * len(expected)


def test_fallback_counts_for_engines_of_a_dla_with_known_placement():
    def on(device, placement):
        return side(device=device, **built(placement=placement))

    assert named(on("dla0", DLA_LAYERS), on("dla0", MIXED)) == [("fallback", KNOWN)]
    assert named(on("dla0", MIXED), on("dla0", DLA_LAYERS)) == []
    assert named(on("dla0", MIXED), on("dla0", MIXED)) == []
    assert named(on("dla0", Placement()), on("dla0", MIXED)) == []
    assert named(on("gpu", DLA_LAYERS), on("gpu", MIXED)) == []


def test_the_order_is_main_shares_then_directions_then_small_shares_then_the_possible():
    good = side(
        "A", clocks_hertz={"emc": 1.2e9, "gpu": 1e9}, optimization_level=3, **board(l4t="36.3")
    )
    bad = side("B", batch=2, clocks_hertz={"gpu": 9e8}, optimization_level=0, **board(l4t="36.4"))
    found = causes_of(good, bad, "inference", 2.0)
    assert [one.name for one in found] == ["batch", "optimization_level", "clocks", "versions"]
    assert [one.share and round(one.share, 2) for one in found] == [1.0, None, 0.15, None]
    # The same clock bounds less than a tenth of a larger difference.
    found = causes_of(good, bad, "inference", 4.0)
    assert [one.name for one in found] == ["batch", "optimization_level", "versions"]
    assert found[0].share == pytest.approx(0.5)


def test_a_cause_acts_on_a_part_that_grew():
    bad = {"parts_seconds": GROWN, **built(has_cuda_graph=False, has_transfers=True)}
    good = {"parts_seconds": SHORT, **built(has_cuda_graph=True, has_transfers=False)}
    # Compute grew, so the copies explain nothing.
    assert named(side("A", **good), side("B", **bad)) == [("cuda_graph", MOST)]
    copied = {**bad, "parts_seconds": {"copies": 1e-3, "compute": 1e-3, "host": 1e-4}}
    assert named(side("A", **good), side("B", **copied)) == [("transfers", "measured")]


def test_a_busy_cpu_slows_the_host_and_launches_but_not_a_graph():
    def with_graph(has_graph, load, parts):
        return {**load, "parts_seconds": parts, **built(has_cuda_graph=has_graph)}

    for has_graph, expected in ((True, []), (False, [("contention", MOST)])):
        good = side("A", **with_graph(has_graph, CPU_FREE, SHORT))
        bad = side("B", **with_graph(has_graph, CPU_BUSY, GROWN))
        assert named(good, bad) == expected
    good = side("A", device="cpu", **with_graph(True, CPU_FREE, SHORT))
    bad = side("B", device="cpu", **with_graph(True, CPU_BUSY, GROWN))
    assert named(good, bad) == [("contention", MOST)]


def test_parts_are_per_input_for_a_rate_and_unknown_with_streams():
    # A batch of two takes twice as long: per input nothing grew but the host.
    twice = {"copies": 2e-4, "compute": 2e-3, "host": 4e-4}
    good = side("A", parts_seconds=SHORT, optimization_level=3)
    bad = side("B", parts_seconds=twice, optimization_level=0, batch=2)
    assert ("optimization_level", MOST) in named(good, bad)
    assert named(good, bad, "input", 1.1) == []
    crowded = side("B", parts_seconds=GROWN, optimization_level=0, **built(streams=2))
    assert ("optimization_level", KNOWN) in named(good, crowded)


def test_clocks_bound_the_parts_that_they_drive():
    parts = {"copies": 1e-3, "compute": 1e-3, "host": 2e-3}
    good = side("A", parts_seconds=parts, clocks_hertz={"gpu": 1e9, "emc": 2e9, "cpu": 2e9})
    slower = {"copies": 2e-3, "compute": 2e-3, "host": 2e-3}
    bad = side("B", parts_seconds=slower, clocks_hertz={"gpu": 1e9, "emc": 1e9, "cpu": 2e9})
    [cause] = causes_of(good, bad, "inference", 2.25)
    # Copies and compute take twice as long: 6 ms in place of 4.
    assert cause.share == pytest.approx(0.5)
    assert "emc clock 1000 MHz in B, 2000 MHz in A" in cause.sentence
    assert "gpu" not in cause.sentence


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
