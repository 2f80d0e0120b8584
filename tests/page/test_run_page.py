"""The page of a run in a real browser: all that its record holds, and nothing that it does not."""

import pytest

from tegrascope.daemon.measure.report import Energy, Interval, PhaseEnergy, RailEnergy

from .board import report
from .test_status_page import AUDIT, telemetry

LATENCY = {
    "count": 4000,
    "min_seconds": 0.001,
    "mean_seconds": 0.0021,
    "p50_seconds": 0.002,
    "p90_seconds": 0.003,
    "p95_seconds": 0.004,
    "p99_seconds": 0.006,
    "p999_seconds": 0.009,
    "max_seconds": 0.0125,
}
ENERGY = Energy(
    rule="made",
    total_rails=("VDD_GPU_SOC", "VDD_CPU_CV"),
    rails={"VDD_GPU_SOC": RailEnergy(gross_joules=160.0, mean_watts=8.0, baseline_watts=2.0)},
    gross_joules=240.0,
    net_joules=180.0,
    gross_joules_per_inference=0.06,
    net_joules_per_inference=0.045,
    gross_interval=Interval(low=232.0, high=252.0),
    net_interval=Interval(low=170.0, high=194.0),
    largest_uncertainty="baseline_drift",
    offset_joules=36.0,
)
OFFLINE = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
PLACEMENT = {
    "verdict": "mixed",
    "loadables": 2,
    "dla_layers": ("conv1", "conv2"),
    "gpu_layers": ("softmax",),
    "reformat_layers": ("copy in",),
}


def text(tab, section: str) -> str:
    words = tab.run(
        f"document.querySelector('section[aria-labelledby={section}]')?.innerText ?? ''"
    )
    return " ".join(str(words).split())


def open_run(show, board, made, **look):
    tab = show(f"{board.url}runs/{made.run_id}", **look)
    tab.wait_for("document.querySelector('#facts') && document.querySelector('#power path.curve')")
    return tab


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)], ids=["wide", "phone"])
def test_page_tells_the_whole_record(board, show, width, dark):
    """Latency, energy with its interval, placement, flags and company are there in words."""
    board.fill(telemetry, 60, 1, 0.5)
    other = board.finish(48, 12, workload="yolo", device="gpu")
    made = board.finish(
        50,
        20,
        inferences=4000,
        throughput_per_second=400.0,
        latency=LATENCY,
        energy=ENERGY,
        built={"placement": PLACEMENT, "requested_precision": "fp16"},
        quality=("foreign_dla_activity", "fallback", "simulated"),
        other_processes=(
            {"name": "trtexec", "cpu_seconds": 1.5, "dla_seconds": {"dla1": 0.25}},
            {"name": "other", "dla_seconds": {"dla0": 0.5}},
        ),
        foreign_dla_processes=("trtexec",),
        overlapping_runs=(other.run_id,),
        cold_start_seconds={"load": 0.5},
        telemetry={
            "samples": 100,
            "utilization": {"gpu": {"mean_ratio": 0.5, "max_ratio": 0.9}},
            "gpu_power_watts": 48.5,
            "sources": {"gpu": "nvml", "gpu_power": "nvml"},
        },
        environment={"simulated": True, "versions": {"tensorrt": "10.3"}},
    )
    tab = open_run(show, board, made, width=width, dark=dark)
    latency = text(tab, "latency")
    figures = text(tab, "figures")
    assert "inferences 4000 throughput 400 inputs/s p50 2.00 ms" in figures
    for words in ("mean 2.10 ms", "p50 (median)", "2.00 ms", "p99.9", "9.00 ms", "12.5 ms"):
        assert words in latency
    widths = tab.run(
        "[...document.querySelectorAll('#latency ~ table rect')].map(r => r.getAttribute('width'))"
    )
    assert widths == [
        "8.00%",
        "16.80%",
        "16.00%",
        "24.00%",
        "32.00%",
        "48.00%",
        "72.00%",
        "100.00%",
    ]
    energy = text(tab, "energy")
    for words in ("240 J", "232 J to 252 J", "60.0 mJ (58.0 mJ to 63.0 mJ)", "45.0 mJ"):
        assert words in energy
    scales = tab.run("[...document.querySelectorAll('td.wide')].map(td => td.dataset.label)")
    expected = {"bar: 0 to 12.5 ms", "bar: 0 to 252 J, steady phase"}
    assert {" ".join(one.split()) for one in scales} == expected
    assert "Largest uncertainty: baseline drift" in energy
    assert "an offset of the sensors of up to 36.0 J" in energy
    assert "A load has no interval" in text(tab, "telemetry")
    assert "gpu, by NVML 50.0 %" in text(tab, "telemetry")
    assert "Mean power of the GPU, by NVML: 48.5 W" in text(tab, "telemetry")
    placement = text(tab, "placement")
    for words in ("mixed", "Layers that fell back to the GPU: 1", "softmax", "2 DLA loadables"):
        assert words in placement
    assert "Layers that compute ran on the GPU although" in text(tab, "flags")
    assert "used a DLA during the run. It was trtexec." in text(tab, "flags")
    processes = text(tab, "processes")
    for words in ("trtexec 1.50 s dla1 250 ms", "dla0 500 ms"):
        assert words in processes
    link = "document.querySelector('#overlaps ~ ul a').href"
    assert tab.run(link) == f"{board.url}runs/{other.run_id}"
    assert "these figures are not from a real board" in tab.run("document.body.innerText")
    bands = (
        "[...document.querySelectorAll('#lanes a')].map(a => a.getAttribute('aria-label')).join()"
    )
    for words in ("resnet on dla0", "yolo on gpu"):
        tab.wait_for(f"{bands}.includes({words!r})")
    assert tab.run(AUDIT) == []
    assert tab.complaints == []
    assert {url for url in tab.asked if not url.startswith(board.url)} == set()


def test_legends_tell_the_means_of_the_run(board, show):
    """What the board did after it is not told as of the run; its colours are those of all pages."""
    board.fill(lambda ago: telemetry(0) | {"gpu.utilization_ratio": 0.5 * (ago > 30)}, 60, 0, 0.5)
    board.finish(58, 2, workload="first", device="gpu")
    made = board.finish(50, 20)
    board.live.set_workloads({"first": "gpu", "resnet": "dla0"})
    tab = open_run(show, board, made)
    legend = "[...document.querySelectorAll('#load .legend button')].map(b => b.innerText).join()"
    tab.wait_for(f"({legend}).replaceAll('\u00a0', ' ').includes('GPU 50 %')")
    assert "means of the steady phase" in tab.run("document.querySelector('#cursor').innerText")
    assert tab.run("document.querySelector('#lanes a').className").split()[1] == "shade1"
    assert "steady" in tab.run("document.querySelector('#power svg').textContent")


def test_misses_of_a_deadline_have_the_flags_that_held_then(board, show):
    board.fill(telemetry, 60, 1, 0.5)
    deadline = {
        "deadline_seconds": 0.033,
        "misses": 1234,
        "worst_lateness_seconds": 0.017,
        "flags_at_misses": ("throttled", "overlapped"),
    }
    made = board.finish(50, 20, inferences=4000, latency=LATENCY, deadline=deadline)
    tab = open_run(show, board, made)
    found = text(tab, "deadline")
    for words in (
        "1,234 of 4,000 inferences took longer than 33.0 ms, the longest by 17.0 ms",
        "throttled, overlapped",
        "They need not be its cause",
    ):
        assert words in found
    assert tab.complaints == []


def test_energy_per_unit_is_on_both_pages(board, show):
    board.fill(telemetry, 60, 1, 0.5)
    each = {"joules_per_unit": 0.25, "joules_per_unit_interval": Interval(low=0.24, high=0.26)}
    phases = (
        PhaseEnergy(
            name="prefill",
            count=12,
            seconds=3.5,
            method="regression",
            gross_joules=60.0,
            gross_interval=Interval(low=58.0, high=62.0),
            joules_per_unit=0.5,
        ),
        PhaseEnergy(name="sort", count=1, seconds=0.01, reason="it is too short"),
    )
    withheld = {"gross_joules_per_inference": None, "net_joules_per_inference": None}
    changes = {**each, "net_joules_per_unit": 0.125, "phases": phases, **withheld}
    energy = ENERGY.model_copy(update=changes)
    made = board.finish(
        50, 20, inferences=12, energy=energy, unit="token", units=1960.5, units_per_second=98
    )
    tab = open_run(show, board, made)
    for row in (
        "units of work 1960.5 tokens units per second 98.0 tokens/s",
        "gross energy per unit 250 mJ per token ± 4.0 %, sensor offset ± 37.5 mJ"
        " net energy per unit 125 mJ per token",
    ):
        assert row in text(tab, "figures")
    assert "inference is withheld: fewer than 200 inferences." in text(tab, "energy")
    for row in (
        "prefill 12 3.50 s 60.0 J 58.0 J to 62.0 J 500 mJ regression",
        "sort 1 10.0 ms – – – it is too short",
    ):
        assert row in text(tab, "energy")
    assert tab.complaints == []
    board.live.set_workloads({"resnet": "dla0"})
    tab = show(board.url)
    for place in ("#runs", "#workloads"):
        found = f"document.querySelector('{place}').innerText"
        tab.wait_for(f"{found}.replaceAll('\u00a0', ' ').includes('250 mJ gross per token')")
    assert tab.complaints == []


def test_what_the_record_lacks_has_no_place(board, show):
    """Few inferences have no p99.9, a withheld figure is said to be, and nothing is made up."""
    board.fill(telemetry, 60, 1, 0.5)
    withheld = ENERGY.model_copy(
        update={"gross_joules_per_inference": None, "net_joules_per_inference": None}
    )
    made = board.finish(
        50, 20, latency={**LATENCY, "count": 100}, energy=withheld, quality=("overlapped",)
    )
    tab = open_run(show, board, made)
    assert "p99.9" not in text(tab, "latency")
    assert "mJ" not in text(tab, "energy")
    assert "withheld: overlapped" in text(tab, "energy")
    assert text(tab, "placement") + text(tab, "processes") == ""
    assert "simulated" not in tab.run("document.querySelector('main').innerText")
    failed = board.finish(40, 1, outcome="failed", reason="no engine", phases={})
    other = open_run(show, board, failed)
    assert "failed: no engine" in other.run("document.getElementById('outcome').innerText")
    assert text(other, "latency") + text(other, "energy") == ""


def test_run_in_flight_becomes_its_record(board, show):
    """While it runs the page says so; when it ends the record comes by itself."""
    board.fill(telemetry, 60, 1, 0.5)
    made = board.begin(10, workload="now")
    tab = show(f"{board.url}runs/{made.run_id}")
    tab.wait_for("document.getElementById('under').innerText.includes('Running on dla0')")
    board.finish(10, 9, workload="now", run_id=made.run_id)
    tab.wait_for("document.querySelector('#facts')")
    assert tab.complaints == []


def test_run_that_waits_and_a_daemon_that_restarts_are_waited_for(board, show):
    """What was started by a call may wait for its turn; and the page outlives what it asks."""
    board.fill(telemetry, 60, 1, 0.5)
    made = report(10, 0.0, workload="now")
    tab = show(f"{board.url}runs/{made.run_id}")
    tab.wait_for("document.getElementById('trouble').innerText.includes('no finished run')")
    board.begin(10, workload="now")
    tab.wait_for("document.getElementById('under').innerText.includes('Running on dla0')")
    tab.wait_for("document.getElementById('trouble').hidden")
    tab.call("Network.emulateNetworkConditions", **OFFLINE)
    tab.wait_for("document.getElementById('trouble').innerText.includes('trying again')")
    board.finish(10, 9, workload="now", outcome="failed", reason="no engine", run_id=made.run_id)
    tab.call("Network.emulateNetworkConditions", **{**OFFLINE, "offline": False})
    tab.wait_for("document.querySelector('#facts')")
    tab.wait_for("document.getElementById('trouble').hidden")
    assert tab.run("document.getElementById('outcome').innerText") == "failed: no engine"


def test_run_that_is_not_there_is_told(board, show):
    """A wrong address ends in a sentence."""
    tab = show(f"{board.url}runs/0199")
    tab.wait_for("document.getElementById('trouble').innerText.includes('no finished run ')")
