"""Checks of beliefs about tegrastats, the kernel's files without the DLA's, and the service."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from statistics import median

from ...collectors.board.boards import find_rail_rule
from ...collectors.board.readers import clock_of
from ...parsers import nvpmodel
from ...parsers.errors import PIP_INSTALL, ParseError
from ...parsers.nvgpu.use import ContextUse
from ...parsers.records import Sample
from ...parsers.signals import GPU_FREQUENCY
from ...parsers.tegrastats import parse_line
from .belief import (
    Checks,
    Decision,
    Evidence,
    Unseen,
    decide,
    lacking,
    listed,
    not_here,
    refuted,
    undecided,
)

CHECKS = Checks()

# Fewer readings say little about steps and distances.
_FEWEST = 5
# A line is late by less on a board that is not overloaded.
_AT_ONCE = 0.5
_FEW_STEPS, _ALMOST = 12, 0.7
_MOST_BYTES, _MOST_RATIO = 64 << 20, 0.01
_STOPPED_SECONDS = 3.0
# Beside other readings a line comes later by less than the first, and usually by the second.
_LATE_SECONDS, _MOVED_SECONDS = 0.05, 0.01
# Half the interval of a second series beside lines of 103 ms.
_LONGEST_READING_SECONDS = 0.04
_UNCOUNTED = "nothing counted"
# Of all time that contexts are on the GPU, since the first and the last line may be late.
_MOST_SHARE = 1.02


def samples(lines: Evidence) -> list[Sample]:
    """Return the record of each line that is one of tegrastats; without one, raise ``Unseen``."""
    records = []
    for line in lines.lines:
        with suppress(ParseError):
            records.append(parse_line(line))
    if not records:
        raise Unseen(undecided("tegrastats printed nothing that can be read"))
    return records


@CHECKS.needs("tegrastats")
def lines_complete(lines: Evidence) -> Decision:
    """Every line is read, and no token of it is left over."""
    read = samples(lines)
    printed = [line for line in lines.lines if not line.startswith("stderr: ")]
    other = len(printed) - len(read)
    tokens: set[str] = set()
    for sample in read:
        tokens.update(sample.unparsed)
    left = sorted(tokens)
    because = f"{len(read)} lines; left over: {listed(left)}; lines of another form: {other}"
    return decide(not left and not other, because)


@CHECKS.needs("tegrastats")
def lines_at_once(lines: Evidence) -> Decision:
    """The middle half of the distances is near the usual one: lines do not come in bundles."""
    steps = _steps(lines)
    usual = median(steps)
    # With a usual distance of 0, all of them came in one bundle.
    bundled = len(steps) if usual == 0 else bisect_left(sorted(steps), _AT_ONCE * usual)
    because = f"{len(steps)} distances of {usual:.3f} s; {bundled} of less than half of it"
    return decide(bundled <= len(steps) // 5, because)


def _steps(lines: Evidence) -> list[float]:
    """Return the distances of the lines in seconds; of too few, raise ``Unseen``."""
    steps = [late - early for early, late in pairwise(lines.at_seconds)]
    if len(steps) < _FEWEST:
        raise Unseen(undecided(f"{len(steps)} distances between lines are too few"))
    return steps


@CHECKS.needs("tegrastats")
def rail_steps(lines: Evidence) -> Decision:
    """Readings of a rail are equal but for the voltage, or a step apart.

    Current comes in steps and the voltage moves by a percent, so only readings of a few steps tell.
    """
    read = samples(lines)
    rule = find_rail_rule(read[0].rails)
    if rule is None or "Orin" not in rule.name:
        return not_here("no step of these rails is believed", "use a board with Orin")
    whole, between = 0, 0
    for rail in rule.rails:
        steps = {watts / rule.step_watts(rail) for watts in _watts_of(rail, read)}
        for lower, upper in pairwise(sorted(steps)):
            if upper >= _FEW_STEPS:
                break
            if upper - lower >= _ALMOST:
                whole += 1
            elif upper - lower > 1 - _ALMOST:
                between += 1
    because = f"{whole} distances of a step of {rule.name} or more, {between} of about half of one"
    if whole + between < _FEWEST // 2:
        return undecided(f"{because}: too few readings of a few steps differ")
    return decide(between <= whole // 4, because)


def _watts_of(rail: str, read: Sequence[Sample]) -> list[float]:
    """Return the readings of a rail, of the samples that have it."""
    return [sample.rails[rail].instant_watts for sample in read if rail in sample.rails]


@CHECKS.needs("hwmon", "tegrastats")
def rail_labels(hwmon: Evidence, lines: Evidence) -> Decision:
    """Each label of a sensor is a rail of tegrastats."""
    # NC: the channel is not connected.
    labels = lacking(hwmon.texts(r"/in[1-3]_label$"), ("NC", ""))
    if not labels:
        return not_here("no sensor of this board has labels", "use a board with INA3221")
    other = lacking(labels, samples(lines)[-1].rails)
    return decide(not other, f"labels: {listed(labels)}; not printed: {listed(other)}")


@CHECKS.needs("hwmon", "tegrastats")
def ina238_vin(hwmon: Evidence, lines: Evidence) -> Decision:
    """Voltage times current of the sensor are about the watts that tegrastats prints."""
    chips = hwmon.paths("/name$", "ina238")
    printed = _watts_of("VIN", samples(lines))
    if not chips or not printed:
        return not_here("this board has no INA238, or prints no VIN", "use a Thor")
    folder, why = chips[0].removesuffix("name"), "the sensor gives no voltage or no current"
    volts = hwmon.need(f"^{folder}in1_input$", why)
    watts = volts * hwmon.need(f"^{folder}curr1_input$", why) / 1e6
    because = f"{watts:.1f} W by the sensor, {median(printed):.1f} W printed as VIN"
    return decide(abs(watts - median(printed)) <= 0.3 * median(printed), because)


@CHECKS.needs("board", "hwmon")
def over_current_readable(board: Evidence, hwmon: Evidence) -> Decision:
    """Each user reads the counters of ``soctherm_oc``; Xavier has none."""
    if "Orin" not in (board.value("^module$") or ""):
        return not_here("the counters are believed of Orin only", "use a board with Orin")
    folders = set()
    for path, text in hwmon.items("/name$"):
        if "soctherm" in text:
            folders.add(_folder(path))
    counters = dict(hwmon.items(r"/oc\d_event_cnt$"))
    holds = bool(counters)
    for path, text in counters.items():
        holds = holds and _folder(path) in folders and text.isdecimal()
    return decide(holds, f"{len(counters)} counters in {len(folders)} folders named soctherm_oc")


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


@CHECKS.needs("rail_times")
def rail_reading_time(times: Evidence) -> Decision:
    """A reading is not longer than all samples of all channels; the distance of lines is not seen.

    The driver's interval is that of a whole cycle of its channels.
    """
    readings = times.texts("_input seconds$")
    if not readings:
        return not_here("no sensor of rails can be read", "use a board with INA3221 or INA238")
    slowest = max(map(float, readings))
    seen = f"the slowest reading takes {slowest:.4f} s"
    interval = times.need("/update_interval$", f"{seen}; no interval is given")
    limit = 2e-3 * max(interval, 1) * max(times.number("/samples$") or 1, 1) + 0.02
    because = f"{seen}, its sensor {limit:.3f} s at most"
    if slowest > limit:
        return refuted(because)
    return undecided(f"{because}; compare the distance of lines beside the daemon")


@CHECKS.needs("tegrastats", "rails_beside")
def rails_beside_lines(alone: Evidence, beside: Evidence) -> Decision:
    """Readings are short, and the lines beside them as far apart as alone, but for a few."""
    took = beside.need("^seconds$", "no rail was read beside the lines")
    steps = _steps(beside)
    usual, usual_alone = median(steps), median(_steps(alone))
    if usual_alone == 0:
        return undecided("lines come in bundles, also alone")
    off = sum(abs(step - usual) > _LATE_SECONDS for step in steps)
    because = f"a reading takes {1000 * took:.1f} ms; lines are {usual:.3f} s apart beside, "
    because += f"{usual_alone:.3f} s alone; {off} of {len(steps)} distances differ from that"
    is_even = abs(usual - usual_alone) <= _MOVED_SECONDS and off <= len(steps) // 5
    return decide(took < _LONGEST_READING_SECONDS and is_even, because)


@CHECKS.needs("board", "files_time")
def files_fast(board: Evidence, times: Evidence) -> Decision:
    """One reading of all files is short."""
    count, seconds = times.number("^files$"), times.number("^seconds$")
    if board.value("^module$") == "None" or not count or seconds is None:
        return not_here("this machine has few of the files", "use a Jetson, outside a container")
    return decide(seconds < 0.005, f"{count:.0f} files in {1000 * seconds:.2f} ms")


@CHECKS.needs("devfreq")
def gpu_clock(devices: Evidence) -> Decision:
    """A device with a clock is known as the GPU."""
    names = [path.split("/")[-2] for path in devices.paths("/cur_freq$")]
    if not names:
        return not_here("no device has a clock here", "use a Jetson, outside a container")
    known = []
    for name in dict.fromkeys(names):
        clock = clock_of(name)
        if clock and clock[0] is GPU_FREQUENCY:
            known.append(name)
    return decide(bool(known), f"the GPU is {listed(known)}, of {listed(names)}")


@CHECKS.needs("nvpmodel")
def power_mode_status(asked: Evidence) -> Decision:
    """The status file has the number that ``nvpmodel -q`` prints."""
    noted = nvpmodel.mode_of(asked.value("/status$"))
    answers = [text for text in asked.texts("^asked$") if not text.startswith("stderr")]
    force = nvpmodel.mode_in_answer("\n".join(answers))
    if noted is None or force is None:
        remedy = "use a Jetson; in a container, mount /var/lib/nvpmodel"
        return not_here("the status file or the answer of nvpmodel is missing", remedy)
    return decide(noted == force, f"the file has mode {noted}, nvpmodel prints {force}")


@CHECKS.needs("nvpmodel")
def largest_mode(asked: Evidence) -> Decision:
    """The mode with the highest caps is a MAXN, and MAXN_SUPER where there is one."""
    modes = nvpmodel.parse_modes("\n".join(asked.texts("nvpmodel.conf$")))
    largest = nvpmodel.largest_mode(modes)
    if largest is None:
        return not_here("nvpmodel.conf has no modes that can be compared", "use a Jetson")
    called = [mode.name for mode in modes if mode.name.startswith("MAXN")]
    if "MAXN_SUPER" in called:
        called = ["MAXN_SUPER"]
    if not called:
        return undecided(f"no mode is called MAXN; the largest by caps is {largest.name}")
    return decide(largest.name in called, f"{largest.name} by caps, {listed(called)} by name")


@CHECKS.needs("hwmon")
def sensor_defaults(hwmon: Evidence) -> Decision:
    """Each sensor averages as the driver does by default: one sample."""
    counts = hwmon.texts("/samples$")
    if not counts:
        return not_here("no sensor shows its settings", "use a board with INA3221")
    return decide(set(counts) == {"1"}, f"samples of each sensor: {listed(counts)}")


@CHECKS.needs("hwmon")
def fan_name(hwmon: Evidence) -> Decision:
    """A chip with a duty is called ``pwmfan``."""
    folders = set(map(_folder, hwmon.paths("/pwm1$")))
    if not folders:
        return not_here("no fan shows its duty", "use a board with a fan")
    names = [text for path, text in hwmon.items("/name$") if _folder(path) in folders]
    return decide("pwmfan" in names, f"chips with a duty: {listed(names)}")


@CHECKS.needs("board")
def jetpack_known(board: Evidence) -> Decision:
    """The table of releases has this one."""
    l4t, jetpack = board.value("^l4t$"), board.value("^jetpack$")
    if l4t in (None, "None"):
        return not_here("this machine has no /etc/nv_tegra_release", "use a Jetson")
    return decide(jetpack != "None", f"Jetson Linux {l4t} is JetPack {jetpack}")


@CHECKS.needs("thermal", "tegrastats")
def critical_trips(thermal: Evidence, lines: Evidence) -> Decision:
    """Each zone that tegrastats prints with a temperature has a critical trip above zero."""
    critical = set()
    for path in thermal.paths("_type$", "critical"):
        if (thermal.number(f"^{path[:-5]}_temp$") or 0) > 0:
            critical.add(_folder(path))
    printed = _printed_zones(samples(lines))
    with_trip, without_trip = set(), set()
    for path, text in thermal.items("/type$"):
        zone = _zone(text)
        if zone in printed and _folder(path) in critical:
            with_trip.add(zone)
        elif zone in printed:
            without_trip.add(zone)
    zones = with_trip | without_trip
    if not zones:
        return not_here("this machine shows no thermal zone of tegrastats", "use a Jetson")
    # Several folders may show one zone; one trip is enough.
    bare = sorted(without_trip - with_trip)
    return decide(not bare, f"{len(zones)} zones; without a critical trip: {listed(bare)}")


def _printed_zones(read: Sequence[Sample]) -> set[str]:
    """Return the zones that lines have with a temperature, in lower case."""
    zones = set()
    for sample in read:
        for zone, celsius in sample.temperatures_celsius.items():
            if celsius is not None:
                zones.add(zone.lower())
    return zones


def _zone(name: str) -> str:
    """Return the name by which tegrastats prints a zone, in lower case.

    >>> _zone("CPU-therm"), _zone("cv0-thermal")
    ('cpu', 'cv0')
    """
    return re.sub(r"[-_]therm(al)?$", "", name).lower()


@CHECKS.needs("board", "doctor", "nvpmodel")
def doctor_names(board: Evidence, doctor: Evidence, asked: Evidence) -> Decision:
    """``doctor`` has module, release and the mode that nvpmodel prints."""
    facts = {name: doctor.value(rf"facts\.{name}$") for name in ("module", "l4t", "id")}
    force = nvpmodel.mode_in_answer("\n".join(asked.texts("^asked$")))
    if board.value("^module$") in (None, "None") or force is None:
        return not_here("this machine is not a Jetson with nvpmodel", "use a Jetson")
    wrong = [name for name, text in facts.items() if text in (None, "None")]
    if facts["id"] != str(force):
        wrong.append("power mode")
    seen = ", ".join(f"{name} {text}" for name, text in facts.items())
    return decide(not wrong, f"{seen}; nvpmodel prints {force}; wrong or unknown: {listed(wrong)}")


@CHECKS.needs("board", "tegrastats", "root_tegrastats", "doctor", "root_doctor")
def doctor_root(
    board: Evidence,
    users_lines: Evidence,
    roots_lines: Evidence,
    doctor: Evidence,
    root_doctor: Evidence,
) -> Decision:
    """``doctor`` misses all that only root's lines have; as root it finds the DLA."""
    if board.value("^root$") == "True":
        return not_here("root runs this", "run tegrascope prove as another user")
    users, roots_own = samples(users_lines), samples(roots_lines)
    lacks = doctor.texts(r"facts\.lacks\.\d+$")
    more = sorted(_groups(roots_own) - _groups(users))
    good = set()
    for path, check in root_doctor.items(r"\.check$"):
        if root_doctor.value(f"^{re.escape(path.removesuffix('check'))}level$") == "good":
            good.add(check)
    bad = lacking(("dla_nodes", "dla_power", "dla_events"), good)
    because = f"root's lines have more: {listed(more)}; doctor misses: {listed(lacks)}"
    because += f"; as root it does not find {listed(bad)}"
    if not more and not bad:
        return undecided(f"{because}; the lines do not differ")
    return decide(set(more) <= set(lacks) and not bad, because)


def _groups(read: Sequence[Sample]) -> set[str]:
    """Return the groups of fields that only root's lines have, by the words of doctor."""
    last = read[-1]
    groups = {"EMC": last.emc, "engines": last.engines, "DLA": last.dla, "rails": last.rails}
    return {name for name, value in groups.items() if value}


@CHECKS.needs("schedstat")
def kernel_counts_waits(schedstat: Evidence) -> Decision:
    """The file of a thread has three numbers."""
    words = (schedstat.value("schedstat$") or "").split()
    return decide(len(words) == 3, f"{len(words)} numbers in schedstat")


def _given(board: Evidence, nvml: Evidence, *modules: str) -> list[str]:
    """Return what NVML gives, or raise ``Unseen`` on other boards: by default but Thor or a PC."""
    if not re.search("|".join(modules or ("None", "Thor")), str(board.value("^module$"))):
        raise Unseen(not_here("this is believed of other boards", "use the board that it names"))
    if not list(nvml.items(r"facts\.(gives|lacks)")):
        raise Unseen(not_here("NVML gave no sample", f"{PIP_INSTALL} nvidia-ml-py; nvidia-smi"))
    return nvml.texts(r"facts\.gives\.\d+$")


@CHECKS.needs("board", "nvml", "bench")
def nvml_of_thor(board: Evidence, nvml: Evidence, bench: Evidence) -> Decision:
    """It has load and memory by process, and a model on the GPU shows its load."""
    given = _given(board, nvml)
    load = bench.need(r"accelerators\.0\.utilization\.gpu\.value$", "the GPU's load is not known")
    because = f"it gives {listed(given)}; the GPU was busy for {100 * load:.0f} %"
    return decide({"GPU load", "memory by process"} <= {*given} and load > 0.2, because)


@CHECKS.needs("board", "nvml")
def nvml_of_orin_gives_nothing(board: Evidence, nvml: Evidence) -> Decision:
    """It lacks load, power and memory by process."""
    given = _given(board, nvml, "Orin")
    return decide(not given, f"it gives {listed(given)}")


@CHECKS.needs("board", "nvml", "sandbox")
def nvml_in_sandbox(board: Evidence, nvml: Evidence, inside: Evidence) -> Decision:
    """It gives there what it gives outside."""
    given, given_inside = _given(board, nvml), _given(board, inside)
    return decide(
        {*given_inside} >= {*given}, f"it gives {listed(given_inside)}, outside {listed(given)}"
    )


@CHECKS.needs("board", "tegrastats", "bench")
def thor_prints_no_gpu_load(board: Evidence, lines: Evidence, bench: Evidence) -> Decision:
    """No line has a load, and that of a busy GPU came from NVML."""
    if board.value("^module$") != "Thor":
        return not_here("this is believed of Thor", "use a Thor")
    with_load = 0
    for sample in samples(lines):
        if sample.gpu is not None and sample.gpu.utilization_ratio is not None:
            with_load += 1
    sources = set(bench.texts(r"telemetry\.sources\.gpu$"))
    if not with_load and not sources:
        return undecided("no model ran on the GPU")
    because = f"{with_load} lines have a load; it comes from {listed(sorted(sources))}"
    return decide(not with_load and sources == {"nvml"}, because)


@CHECKS.needs("modes")
def power_unit_modes(modes: Evidence) -> Decision:
    """Each mode that needs no reboot is set, and the one that was found is restored."""
    answers = [text for text in modes.texts("^answer$") if "reboot" not in text]
    before, after = modes.value("^before$"), modes.value("^after$")
    if not answers:
        return not_here("no mode can be set without a reboot", "use another board")
    because = f"answers: {listed(answers)}; {before} before, {after} after"
    return decide(set(answers) == {"ok"} and before == after, because)


@CHECKS.needs("modes")
def reboot_mode_refused(modes: Evidence) -> Decision:
    """A mode that needs a reboot is refused with these words, and the one before stays."""
    refused = [text for text in modes.texts("^answer$") if "reboot" in text]
    if not refused:
        return not_here("no mode of this board needs a reboot", "use AGX Orin or Orin Nano")
    stays = list(dict.fromkeys([modes.value("^before$"), *modes.texts("^refused in$")]))
    return decide(len(stays) == 1, f"{len(refused)} modes need a reboot; modes: {listed(stays)}")


@CHECKS.needs("daemon")
def parent_small(daemon: Evidence) -> Decision:
    """Memory, and processor time after the start; a minute proves no more."""
    size = daemon.need("^rss bytes$", "the daemon did not run")
    ratio = daemon.need("^cpu ratio$", "the daemon did not run")
    because = f"{size / (1 << 20):.0f} MiB, {100 * ratio:.1f} % of a core in {daemon.seconds:.0f} s"
    if size > _MOST_BYTES or ratio > _MOST_RATIO:
        return refuted(because)
    return undecided(f"{because}; measure after ten minutes")


@CHECKS.needs("daemon")
def page_memory(daemon: Evidence) -> Decision:
    """The most memory while its page was asked for each second; a minute proves no more."""
    size = daemon.need("^hwm bytes$", "the daemon did not run")
    because = f"at most {size / (1 << 20):.0f} MiB in {daemon.seconds:.0f} s"
    if size > _MOST_BYTES:
        return refuted(because)
    return undecided(f"{because}; leave the page open for ten minutes")


@CHECKS.needs("unit")
def unit_starts(unit: Evidence) -> Decision:
    """It starts, so it is ready (Type=notify), and stops in time."""
    states = unit.texts("status$")
    seconds = unit.number("^stop seconds$")
    if seconds is None or len(states) < 2:
        return undecided("the unit was not started and stopped")
    holds = states == ["0", "0"] and seconds < _STOPPED_SECONDS
    return decide(holds, f"status {' and '.join(states)}; stopped in {seconds:.1f} s")


@CHECKS.needs("root_tegrastats", "socket")
def root_tegrastats_in_sandbox(roots_lines: Evidence, served: Evidence) -> Decision:
    """The lines of the unit have the names that root's lines have."""
    differ = sorted(_names(samples(roots_lines)[-1]) ^ _names(samples(served)[-1]))
    return decide(not differ, f"names in one of the two only: {', '.join(differ) or 'none'}")


def _names(sample: Sample) -> set[str]:
    """Return the names of all values of a line."""
    names = {*sample.engines, *sample.temperatures_celsius, *sample.rails}
    for name, value in (("EMC", sample.emc), ("GR3D", sample.gpu), ("RAM", sample.ram)):
        if value is not None:
            names.add(name)
    for core in range(len(sample.dla)):
        names.add(f"NVDLA{core}")
    return names


@CHECKS.needs("socket")
def tegrastats_ends(served: Evidence) -> Decision:
    """No tegrastats is left after our connection was closed."""
    samples(served)
    before, after = served.need("^before$", _UNCOUNTED), served.need("^after$", _UNCOUNTED)
    return decide(after <= before, f"{before:.0f} ran before, {after:.0f} three seconds after")


@CHECKS.needs("venv")
def package_installs(venv: Evidence) -> Decision:
    """The package's Python imports numpy, TensorRT and the CUDA binding."""
    words = venv.last_words[:120]
    return decide(venv.status == 0 and venv.has("^ok"), f"it printed: {words}")


@CHECKS.needs("nvmap")
def nvmap_lists_all(nvmap: Evidence) -> Decision:
    """The clients hold what the kernel counts for all of them."""
    used, clients = nvmap.number("^used kB$"), nvmap.number("^clients kB$")
    if not used or clients is None:
        return not_here("the kernel counts no memory of NvMap", "use an Orin or an older board")
    because = f"clients hold {clients / 1024:.0f} MiB, and NvMapMemUsed is {used / 1024:.0f} MiB"
    return decide(abs(clients - used) <= 0.03 * used, because)


@CHECKS.needs("gpu_trace")
def gpu_switches(trace: Evidence) -> Decision:
    """Two programs that work at once are named, and have no more time than there is."""
    span_ns = 0
    process_ns: Counter[int] = Counter()
    for line in trace.lines:
        if line.startswith('{"span_ns'):
            use = ContextUse.model_validate_json(line)
            span_ns += use.span_ns
            process_ns.update(use.process_ns)
    if not process_ns:
        return refuted(f"the reader printed {trace.last_words}")
    unknown = process_ns.pop(0, 0) / span_ns
    share = process_ns.total() / span_ns
    because = f"{len(process_ns)} processes had {share:.0%} of the time, {unknown:.0%} is unknown"
    return decide(len(process_ns) > 1 and share <= _MOST_SHARE, because)
