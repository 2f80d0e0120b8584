"""A run has one text: rows of label, value and unit, and one line of them for the log."""

from tegrascope.daemon.measure.report import (
    Energy,
    Environment,
    Figure,
    Interval,
    LockInReport,
    ProcessShare,
    RailEnergy,
    RunReport,
    RunTelemetry,
    Span,
    Temperature,
    Utilization,
)
from tegrascope.daemon.measure.run_text import Row, half_of, run_line, run_rows
from tegrascope.parsers.inference.placement import Built, Placement

RUN = RunReport(
    run_id="0193",
    workload="resnet",
    backend="tensorrt",
    device="dla0",
    outcome="ok",
    started_wall_ns=0,
    started_ns=0,
    ended_ns=25_000_000_000,
    phases={"steady": Span(begin_ns=0, end_ns=20_000_000_000)},
    inferences=400,
    throughput_per_second=20.0,
)
ENERGY = Energy(
    total_rails=("VDD_IN",),
    rails={"VDD_IN": RailEnergy(gross_joules=80.0, mean_watts=4.0)},
    gross_joules=80.0,
    gross_interval=Interval(low=78.0, high=82.0),
    net_joules=40.0,
    baseline_watts=2.0,
    gross_joules_per_inference=0.2,
)


def texts(**changes):
    return {row.label: row.text for row in run_rows(RUN.model_copy(update=changes))}


def test_unknown_value_has_no_row():
    assert list(texts()) == ["steady phase", "inferences", "throughput", "run"]


def test_peaks_of_memory_stand_beside_what_was_left():
    sizes = {"process_peak_bytes": 640 << 20, "gpu_peak_bytes": 0, "least_available_bytes": 3 << 30}
    found = texts(**sizes)
    assert found["peak memory of the worker"] == "640 MiB"
    assert found["peak GPU memory by process"] == "0 MiB"
    assert found["least memory available"] == "3072 MiB"
    assert "peak memory on the device" not in found


def test_number_unit_and_interval_are_apart():
    rows = run_rows(RUN.model_copy(update={"energy": ENERGY}))
    assert Row("gross energy (whole module)", "80.0", "J", "± 2.5 %") in rows
    assert Row("throughput", "20.0", "inputs/s") in rows
    assert Row("module power", "4.00", "W") in rows


def test_gross_energy_has_the_offset_of_the_sensors_beside_it():
    """It is not in the interval, and it cancels in net energy."""
    each = {"joules_per_unit": 0.25, "net_joules_per_unit": 0.1, "offset_joules": 8.0}
    told = texts(unit="query", units=320.0, energy=ENERGY.model_copy(update=each))
    offset = "sensor offset"
    assert told["gross energy (whole module)"] == f"80.0 J ± 2.5 %, {offset} ± 8.00 J"
    assert told["gross energy per inference"] == f"200 mJ ± 2.5 %, {offset} ± 20.0 mJ"
    assert told["gross energy per unit"] == f"250 mJ per query (no interval), {offset} ± 25.0 mJ"
    assert offset not in told["net energy (above idle)"] + told["net energy per unit"]


def test_energy_without_an_interval_says_so():
    unsure = ENERGY.model_copy(update={"gross_interval": None})
    assert texts(energy=unsure)["gross energy (whole module)"] == "80.0 J (no interval)"


def test_withheld_net_energy_has_its_reason():
    changes = {"net_joules": None, "net_reason": "idle power is not known"}
    told = texts(energy=ENERGY.model_copy(update=changes))
    assert told["net energy (above idle)"] == "withheld: idle power is not known"


def test_rails_without_a_total_are_listed():
    told = texts(energy=ENERGY.model_copy(update={"gross_joules": None}))
    assert told["rails, no module total"] == "VDD_IN 4.00 W"
    assert "gross energy (whole module)" not in told


def test_energy_of_a_unit_names_the_unit():
    limits = Interval(low=0.24, high=0.26)
    each = {"joules_per_unit": 0.25, "joules_per_unit_interval": limits, "net_joules_per_unit": 0.1}
    told = texts(unit="query", units=320.0, energy=ENERGY.model_copy(update=each))
    assert told["units of work"] == "320 queries"
    assert told["gross energy per unit"] == "250 mJ per query ± 4.0 %"
    assert told["net energy per unit"] == "100 mJ per query (no interval)"


def test_board_has_loads_and_its_hottest_zone():
    telemetry = RunTelemetry(
        samples=100,
        utilization={"gpu": Utilization(mean_ratio=0.5, max_ratio=0.9)},
        temperature={
            "cpu": Temperature(start_celsius=40, max_celsius=50, delta_celsius=4),
            "gpu": Temperature(start_celsius=50, max_celsius=55, delta_celsius=-2),
        },
    )
    told = texts(telemetry=telemetry)
    assert told["load"] == "gpu 50.0 % (up to 90.0 %)"
    assert told["hottest"] == "55.0 °C gpu (-2.0)"


def test_energy_by_one_series_says_what_it_cannot_see():
    here = Environment(telemetry_interval_seconds=1.0231)
    by_integral = ENERGY.model_copy(update={"gross_method": "integral"})
    run = RUN.model_copy(update={"energy": by_integral, "environment": here})
    assert " · work in step with 1023 ms cannot be seen · " in run_line(run)
    for change in ({"sampling_series": 2}, {"gross_method": "counter"}, {"gross_method": None}):
        other = by_integral.model_copy(update=change)
        assert "in step" not in run_line(run.model_copy(update={"energy": other}))


def test_placement_and_largest_uncertainty_are_words():
    placement = Placement(verdict="dla_plus_reformat")
    wandering = ENERGY.model_copy(update={"largest_uncertainty": "idle_wander"})
    told = texts(built=Built(placement=placement), energy=wandering)
    assert told["placement"] == "on the DLA, the GPU only reformats tensors (dla_plus_reformat)"
    assert told["largest uncertainty"] == "idle power is not constant"


def test_half_of_an_interval_has_no_digits_that_nobody_measured():
    assert half_of(Figure.around(1.0, 0.000037)) == "± < 0.1 %"
    assert half_of(Figure.around(1.0, 0.0123)) == "± 1.2 %"


def test_line_of_the_log_has_the_headline_figures_in_the_same_words():
    changes = {
        "energy": ENERGY,
        "quality": ("not_steady",),
        "other_processes": (ProcessShare(name="trtexec", dla_seconds={"dla0": 1.0}),),
        "lock_in": LockInReport(seconds=300, joules_per_piece=Figure(value=0.01)),
    }
    assert run_line(RUN.model_copy(update=changes)) == (
        "resnet on dla0: ok · inferences 400 · gross energy per inference 200 mJ ± 2.5 %"
        " · energy per piece, saturated 10.0 mJ · flags not_steady · others on a DLA trtexec"
        " · run 0193"
    )
    failed = {"outcome": "failed", "reason": "no engine", "inferences": 0}
    assert (
        run_line(RUN.model_copy(update=failed)) == "resnet on dla0: failed · no engine · run 0193"
    )
