"""Device, further down: clocks, cores and memory, and the daemon itself."""

from .parts import GREEN, RED, Column, Panel, Query, Row, Word
from .queries import PART_COLORS, SEL, rate, telemetry
from .reasons import NO_JETSON, NO_TRACE

CLOCKS = Row(
    "Clocks, cores and memory",
    (
        Panel(
            "timeseries",
            "Clocks",
            "0 is a gated GPU cluster. A load is relative to the clock of that moment, so read "
            "both together.",
            telemetry(
                "Clocks",
                Query(
                    f"max by (instance) (tegra_cpu_frequency_hertz{{{SEL}}})", "CPU, fastest core"
                ),
            ),
            unit="hertz",
            colors=PART_COLORS,
            low=0,
        ),
        Panel(
            "timeseries",
            "CPU cores",
            "Busy share of each core since the previous line. An offline core has no value.",
            telemetry("CPU cores"),
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "Memory",
            "CPU and GPU of a Jetson share this memory. Available is the kernel's estimate. The"
            " largest free block shows the fragmentation. A desktop GPU has its own memory.",
            telemetry("Memory"),
            unit="bytes",
            apart="/total$/",
            width=12,
            low=0,
        ),
        Panel(
            "timeseries",
            "Memory by owner",
            "All memory that Linux has, each page once. processes: anonymous and shared memory;"
            " files that they map are cache. gpu: also what a process maps of it. not_attributed:"
            " buffers of other drivers, and on Thor what the driver keeps.",
            telemetry("Memory by owner", empty=NO_JETSON),
            unit="bytes",
            is_stacked=True,
            width=12,
            low=0,
        ),
        Panel(
            "timeseries",
            "Swap",
            "A board that swaps during inference has too little memory. Cached swap is also in "
            "memory.",
            telemetry("Swap"),
            unit="bytes",
            apart="/total$/",
            width=12,
            low=0,
        ),
        Panel(
            "timeseries",
            "Cores online",
            "Online CPU cores. A power mode with fewer watts switches some off.",
            telemetry(
                "Cores online",
                Query(f"sum by (instance) (tegra_cpu_online{{{SEL}}})", "online", NO_JETSON),
            ),
            width=12,
            low=0,
        ),
    ),
)

DAEMON = Row(
    "The daemon itself",
    (
        Panel(
            "timeline",
            "Sources",
            "Whether each source returns new samples. Additional sources are the kernel files,"
            " the rails and the DLA trace.",
            (Query(f"tegrascope_source_up{{{SEL}}}", "{{source}}"),),
            words=(Word(0, "down", RED), Word(1, "up", GREEN)),
        ),
        Panel(
            "timeseries",
            "Samples and restarts",
            "Samples per second by source, and restarts in the last hour.",
            (
                Query(rate("tegrascope_samples_total"), "{{source}}, per second"),
                Query(
                    f"increase(tegrascope_source_restarts_total{{{SEL}}}[1h])",
                    "{{source}}, restarts in 1 h",
                ),
            ),
            low=0,
        ),
        Panel(
            "timeseries",
            "Unreadable input",
            "In the last hour: lines that are not a record, by reason; unknown tokens; columns "
            "without a signal; irregular events in the DLA trace; lines that arrived several at "
            "once; samples that were refused.",
            (
                Query(
                    f"increase(tegrascope_lines_unparsed_total{{{SEL}}}[1h])",
                    "lines: {{reason}}",
                    "every line was a record",
                ),
                Query(f"increase(tegrascope_tokens_unparsed_total{{{SEL}}}[1h])", "tokens"),
                Query(f"increase(tegrascope_columns_unknown_total{{{SEL}}}[1h])", "columns"),
                Query(
                    f"increase(tegrascope_dla_trace_errors_total{{{SEL}}}[1h])",
                    "trace: {{reason}}",
                    NO_TRACE,
                ),
                Query(f"increase(tegrascope_samples_backlog_total{{{SEL}}}[1h])", "together"),
                Query(f"increase(tegrascope_samples_refused_total{{{SEL}}}[1h])", "refused"),
            ),
            width=8,
            low=0,
        ),
        Panel(
            "table",
            "Sources in force",
            "The source of each metric that several sources can give: the line, kernel files or"
            " NVML.",
            (Query(f"max by (signal, source) (tegrascope_signal_source_info{{{SEL}}})"),),
            width=8,
            columns=(Column("signal", "Metric"), Column("source", "Source")),
            sort=("Metric",),
        ),
        Panel(
            "timeseries",
            "Run store",
            "Failed writes in the last hour. Their data waits in memory and is written again.",
            (
                Query(
                    f"increase(tegrascope_store_write_errors_total{{{SEL}}}[1h])", "failed writes"
                ),
            ),
            width=8,
            low=0,
        ),
        Panel(
            "timeseries",
            "Free space for the run store",
            "Free space on the disk of the store.",
            (Query(f"tegrascope_store_free_bytes{{{SEL}}}", "free"),),
            unit="bytes",
            width=8,
            low=0,
        ),
        Panel(
            "timeseries",
            "Cost of the daemon",
            "CPU use of tegrascope as a share of one core, without its children.",
            (Query(rate("process_cpu_seconds_total"), "CPU"),),
            unit="percentunit",
            width=8,
            low=0,
        ),
        Panel(
            "timeseries",
            "Memory of the daemon",
            "Resident memory of tegrascope, without its children.",
            (Query(f"process_resident_memory_bytes{{{SEL}}}", "resident"),),
            unit="bytes",
            width=8,
            low=0,
        ),
    ),
)
