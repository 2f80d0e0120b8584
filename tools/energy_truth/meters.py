"""The tools that are scored: their versions, interfaces, settings, and where those are from.

A new tool is one row here and one driver per kind of world in ``drivers/``.
"""

from dataclasses import dataclass

from .worlds import Kind

NVML_PACKAGE = "nvidia-ml-py==13.615.71"


@dataclass(frozen=True, slots=True)
class Meter:
    """One tool.

    Attributes:
        requirements: What pip installs into the tool's own environment, with versions.
        drivers: The file in ``drivers/`` for each kind of world that the tool can read.
        interface: What of it is run, for the table.
        setting: The setting, in the words of the tool's authors where they recommend one.
        source: Where that stands.
        polls_without_pause: Where a GPU has no counter, it keeps a processor busy. It is then run
            apart from the others, so that neither disturbs the other.
    """

    name: str
    requirements: tuple[str, ...]
    drivers: dict[Kind, str]
    interface: str
    setting: str
    source: str
    polls_without_pause: bool = False
    is_ours: bool = False

    @property
    def version(self) -> str:
        """The version of its first requirement."""
        return self.requirements[0].partition("==")[2] if self.requirements else ""


METERS = (
    Meter(
        "tegrascope",
        (),
        {},
        "`correlate` on logs, `exec` on live worlds",
        "the default interval of `exec`, 0.103 s; on logs nothing can be set",
        "[windows.md](windows.md#any-program), [correlate.md](correlate.md)",
        is_ours=True,
    ),
    Meter(
        "trapezoid",
        (NVML_PACKAGE,),
        {"sysfs": "trapezoid_sysfs.py", "nvml": "trapezoid_nvml.py"},
        "the yardstick: 20 lines of Python that many people write",
        "every line of a log; live, a reading each 100 ms",
        "`tools/energy_truth`",
    ),
    Meter(
        "jetsontools",
        ("jetsontools==0.1.4",),
        {"log": "jetsontools_log.py", "sysfs": "jetsontools_sysfs.py"},
        "`TegraData` on logs; live, `with TegraStats(...)` and a stand-in `tegrastats`",
        "mean power of the lines in the window times its duration, as `trtutils.jetson` computes "
        "it; live, an interval of 100 ms (the default of 1000 ms has 15 lines in a window)",
        "trtutils 0.6.1, `jetson/_benchmark.py`",
    ),
    Meter(
        "zeus",
        ("zeus==0.16.0", NVML_PACKAGE),
        {"sysfs": "zeus_sysfs.py", "nvml": "zeus_nvml.py"},
        "`ZeusMonitor`, in a process of its own",
        'the defaults: "Mark the beginning of a measurement window" and "Mark the end", as in '
        "the example of the class",
        "zeus 0.16.0, docstring of `ZeusMonitor`",
        polls_without_pause=True,
    ),
    Meter(
        "codecarbon",
        ("codecarbon==3.3.2", NVML_PACKAGE),
        {"nvml": "codecarbon_nvml.py"},
        "`OfflineEmissionsTracker`, its `gpu_energy`",
        "the default, a measurement each 15 s; the tracker samples power each second if a GPU has "
        "no counter",
        "codecarbon 3.3.2, docstring of `BaseEmissionsTracker`",
    ),
    Meter(
        "aiperf",
        ("aiperf==0.13.0", NVML_PACKAGE),
        {"nvml": "aiperf_nvml.py"},
        "`PyNVMLTelemetryCollector` and `GPUTelemetryAccumulator`, without the benchmark around",
        'the default: "GPU telemetry metrics collection interval in seconds (default: 333ms, '
        '~3Hz)"',
        "aiperf 0.13.0, `common/environment.py`",
    ),
    Meter(
        "pyJoules",
        ("pyJoules==0.5.1", NVML_PACKAGE),
        {"nvml": "pyjoules_nvml.py"},
        "`EnergyMeter` of one `NvidiaGPUDomain`",
        'nothing can be set; "only available on nvidia GPU with Volta architecture" and newer',
        "pyJoules 0.5.1, README",
    ),
    Meter(
        "carbontracker",
        ("carbontracker==2.4.7", NVML_PACKAGE),
        {"nvml": "carbontracker_nvml.py"},
        "`CarbonTracker` with one epoch, divided by the PUE of 1.58 that it multiplies with",
        "the default, a reading per second",
        "carbontracker 2.4.7, docstring of `CarbonTracker`",
    ),
    Meter(
        "ai-energymeter",
        ("ai-energymeter==2.0.2", NVML_PACKAGE),
        {"nvml": "ai_energymeter_nvml.py"},
        "`EnergyMeter`, its `get_total_joules_gpu`",
        '"default 0.1 = 10Hz"; with idle power, without the disk',
        "ai-energymeter 2.0.2, docstring of `EnergyMeter`",
    ),
)
BY_NAME = {meter.name: meter for meter in METERS}
