"""Device: one board, now and recently, with its runs as bands."""

from .device_inside import CLOCKS, DAEMON
from .parts import (
    GREEN,
    GREY,
    LIMIT,
    ORANGE,
    RED,
    Dashboard,
    Panel,
    Query,
    Row,
    Step,
    Word,
)
from .queries import (
    BELOW_SHUTDOWN,
    DEVICE,
    DLA_COLORS,
    FRESH,
    HOT,
    JOB,
    NO_TROUBLE,
    PART_COLORS,
    SEL,
    THROTTLED,
    TRUTH,
    TRUTH_QUERY,
    TRUTH_TEXT,
    age,
    headroom,
    not_stacked,
    run_bands,
    telemetry,
    watts,
)
from .reasons import (
    NO_BATTERY,
    NO_GPU_PROCESSES,
    NO_JETSON,
    NO_LIMIT,
    NO_NVML,
    NO_PROCESSES,
    NO_RUN,
    NO_TRACE,
    NOT_EVERYWHERE,
)

# Rails that hold others, or are inside one, are lines above the stack: nothing counts twice.
_APART = "|".join(dict.fromkeys(not_stacked()))

# The head of each dashboard of one board: whose figures these are, and whether they are real.
WHERE = (
    Panel(
        "stat",
        "Board",
        "Board, release and power mode as the daemon reads them. Figures of different power"
        " modes are not comparable.",
        (
            Query(
                f'tegra_info{{{SEL},l4t!=""}}',
                "{{board}} {{module}} L4T {{l4t}} JetPack {{jetpack}} {{power_mode}}",
                NO_JETSON,
            ),
            Query(
                f'tegra_info{{{SEL},l4t=""}}',
                "{{board}} {{module}} {{power_mode}}",
                "a Jetson has a release",
            ),
        ),
        width=18,
        height=4,
        shows_name=True,
    ),
    Panel(
        "stat",
        "Telemetry source",
        TRUTH_TEXT,
        (TRUTH_QUERY,),
        width=6,
        height=4,
        words=TRUTH,
    ),
)

AT_A_GLANCE = Row(
    "At a glance",
    (
        *WHERE,
        Panel(
            "stat",
            "Age of the newest sample",
            "Time from the last line of telemetry to the last scrape. Values older than five "
            "intervals are removed, so that old values never look live.",
            (Query(age(), "age"),),
            unit="s",
            width=6,
            height=4,
            steps=FRESH,
        ),
        Panel(
            "stat",
            "Module power, mean",
            "Mean power of the module between scrapes, by the board's rail rule, without gaps in"
            " telemetry. Without a rule there are only single rails.",
            (Query(f"sum({watts('module')})", "module"),),
            unit="watt",
            width=6,
            height=4,
        ),
        Panel(
            "stat",
            "Hottest zone",
            "Temperature of the hottest thermal zone.",
            (Query(f"max(tegra_temperature_celsius{{{SEL}}})", "hottest"),),
            unit="celsius",
            width=6,
            height=4,
        ),
        Panel(
            "stat",
            "Margin to shutdown",
            "Degrees between the hottest zone and the trip at which the board shuts down. Below"
            " 20 it may throttle soon.",
            (Query(headroom(), "margin"),),
            unit=BELOW_SHUTDOWN,
            width=6,
            height=4,
            steps=HOT,
        ),
        Panel(
            "stat",
            "Figures of DLA, EMC and engines",
            "tegrastats prints these only for root. Without root their series are absent. "
            "Absent does not mean 0.",
            (Query(f"max(tegrascope_root_fields_missing{{{SEL}}})", "tegrastats"),),
            width=8,
            height=4,
            words=(Word(0, "shown", GREEN), Word(1, "hidden: needs root", ORANGE)),
        ),
        Panel(
            "stat",
            "Runs in flight",
            "Scheduled runs and marked windows that are in progress now.",
            (Query(f"sum(tegra_inference_run_active{{{SEL}}})", "runs", NO_RUN),),
            width=8,
            height=4,
        ),
        Panel(
            "stat",
            "Throttled, of the time shown",
            "Share of the time shown in which a clock was held low at the scrapes, without normal"
            " power caps. It may be over now: the chart of held clocks has the times.",
            (
                Query(
                    f"max(avg_over_time(tegra_throttle_active{{{SEL},{NO_TROUBLE}}}[$__range]))",
                    "throttled",
                    NOT_EVERYWHERE,
                ),
            ),
            unit="percentunit",
            width=8,
            height=4,
            steps=(Step(0, GREEN), Step(0.0001, RED)),
        ),
    ),
)

POWER = Row(
    "Power and load",
    (
        Panel(
            "timeseries",
            "Mean power by rail",
            "Mean power of at least four scrape intervals, from energy counters: correct for any "
            "scrape interval, without gaps in telemetry. A shorter peak is lower here. "
            "Independent rails are stacked. A rail that contains others or is inside one "
            f"({_APART.replace('|', ', ')}), the module's total and its budget are dashed lines, "
            "and so is the GPU's power by NVML.",
            (
                Query(watts("rail", f'{SEL},rail!~"{_APART}"'), "{{rail}}"),
                Query(watts("rail", f'{SEL},rail=~"{_APART}"'), "not added: {{rail}}"),
                Query(f"tegra_gpu_power_watts{{{SEL}}}", "not added: GPU by NVML", NO_NVML),
                Query(watts("module"), "module"),
                Query(
                    f"tegrascope_module_power_budget_watts{{{SEL}}}",
                    "budget (configured)",
                    NO_LIMIT,
                ),
            ),
            unit="watt",
            width=24,
            height=10,
            is_stacked=True,
            apart="/^(module|not added|budget)/",
            colors=(*PART_COLORS, ("/^module/", GREY), ("/^budget/", LIMIT)),
            low=0,
        ),
        Panel(
            "timeseries",
            "GPU, memory and CPU",
            "GPU load, use of the memory bandwidth (EMC) at its present clock, and the "
            "mean of all cores. Values are samples at the time of a line.",
            telemetry(
                "GPU, memory and CPU",
                Query(
                    f"avg by (instance) (tegra_cpu_utilization_ratio{{{SEL}}})", "CPU", NO_JETSON
                ),
            ),
            unit="percentunit",
            colors=PART_COLORS,
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "DLA",
            "Busy: the load, by source; ftrace is the exact one. Powered: mostly more than"
            " busy, because a core stays powered for half a second after each task. A sampled busy"
            " share may be some points above it. tegrascope "
            "runs: time with a run in flight. Switched on is 0 or 1 and not a load. A board "
            "without a DLA, like Thor and Orin Nano, has no line.",
            telemetry("DLA"),
            unit="percentunit",
            apart="/switched on$|tegrascope runs$/",
            colors=DLA_COLORS,
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "DLA tasks",
            "Completed tasks per second of all programs, from the driver's trace.",
            telemetry("DLA tasks", empty=NO_TRACE),
            unit="suffix:tasks/s",
            low=0,
        ),
        Panel(
            "timeseries",
            "Video and other engines",
            "Load of NVENC, NVDEC, VIC, OFA and others, if tegrastats prints it. Powered shows "
            "only the gate.",
            telemetry("Video and other engines"),
            unit="percentunit",
            apart="/powered$/",
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "Supply voltages",
            "Voltage of each rail that has a sensor, read every ten seconds or less often, and"
            " the lowest reading since the daemon's start. A dip between two readings is not seen.",
            telemetry("Supply voltages"),
            unit="volt",
            width=8,
            height=10,
            colors=PART_COLORS,
            apart="/lowest/",
        ),
        Panel(
            "timeseries",
            "Supply currents",
            "Current of each rail, and the limits at which its sensor raises an alarm: of the mean"
            " and of one conversion. Alarms without a current near a limit are short peaks, or a"
            " voltage that is too low.",
            telemetry("Supply currents"),
            unit="amp",
            width=8,
            height=10,
            colors=PART_COLORS,
            apart="/limit/",
            low=0,
        ),
        Panel(
            "timeseries",
            "Battery",
            "Charge of each battery that the kernel lists. Guards of workloads look at it.",
            telemetry("Battery", empty=NO_BATTERY),
            unit="percentunit",
            width=8,
            height=10,
            low=0,
            high=1,
        ),
    ),
)

PROCESSES = Row(
    "Processes",
    (
        Panel(
            "timeseries",
            "CPU by process",
            "CPU cores in use by the processes of a name: the busiest, and those that the"
            " configuration names. tegrascope is the daemon with all its children.",
            telemetry("CPU by process", empty=NO_PROCESSES),
            low=0,
        ),
        Panel(
            "timeseries",
            "Memory by process",
            "Resident memory of the same processes, in which shared memory counts for each. With"
            " root's memory reader also the proportional size, in which it counts in parts.",
            telemetry("Memory by process", empty=NO_PROCESSES),
            unit="bytes",
            low=0,
        ),
        Panel(
            "timeseries",
            "DLA by process",
            "Share of time in which tasks of a process kept a DLA core busy, from the driver's"
            " trace. other: the process is not known.",
            telemetry("DLA by process", empty=NO_TRACE),
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "GPU load by process",
            "Share of time in which a process computed on the GPU, by NVML (a PC, Thor). other: the"
            " process is not known.",
            telemetry("GPU load by process", empty=NO_GPU_PROCESSES),
            unit="percentunit",
            low=0,
        ),
        Panel(
            "timeseries",
            "GPU memory by process",
            "Memory of the GPU by NVML (a PC, Thor) or by root's memory reader (Orin and older)."
            " kernel: drivers. other: the process is not known.",
            telemetry("GPU memory by process", empty=NO_GPU_PROCESSES),
            unit="bytes",
            low=0,
        ),
    ),
)

HEAT = Row(
    "Temperature",
    (
        Panel(
            "timeseries",
            "Temperatures",
            "Thermal zones. A zone without power has no series. Dashed: the lowest trip of each"
            " kind. On many boards the lowest passive trip only means that the surface is hot.",
            telemetry(
                "Temperatures",
                Query(
                    f"min by (kind) (tegra_temperature_trip_celsius{{{SEL}}})",
                    "trip: {{kind}}",
                ),
            ),
            unit="celsius",
            width=24,
            height=10,
            apart="/^trip/",
            colors=(("/^trip/", GREY), ("/^trip: critical/", LIMIT)),
        ),
        Panel(
            "timeline",
            "Clocks held low",
            "Whether a clock is held low now, by kind. A board that is throttled without pause"
            " has one event only, so the chart of the events does not show it.",
            telemetry("Clocks held low"),
            width=8,
            words=(Word(0, "free", GREEN), Word(1, "held low", RED)),
        ),
        Panel(
            "timeseries",
            "Throttling",
            "Throttle events per minute, by kind: each begin of throttling is one. sw_power_cap"
            " and board_limit of a desktop GPU are normal.",
            telemetry(
                "Throttling",
                Query(
                    f"increase(tegra_throttle_events_total{{{SEL}}}[1m])",
                    "{{kind}}",
                ),
            ),
            width=8,
            low=0,
        ),
        Panel(
            "timeseries",
            "Fans and cooling",
            "Fans, and the state of each cooling device. cpufreq-… and devfreq-… above 0 lower "
            "a clock and cost performance.",
            telemetry("Fans and cooling"),
            width=8,
            unit="percentunit",
            low=0,
            high=1,
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="tegrascope-device",
    title="tegrascope: device",
    description="One board, now and recently: rails, GPU, DLA, memory, temperature, and its runs.",
    variables=(JOB, DEVICE),
    bands=(*run_bands(SEL), THROTTLED),
    rows=(AT_A_GLANCE, POWER, HEAT, CLOCKS, PROCESSES, DAEMON),
)
