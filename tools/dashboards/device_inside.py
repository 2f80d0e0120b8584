"""Device, further down: clocks, cores and memory, and what the daemon says of itself."""

from .parts import GREEN, RED, Panel, Query, Row, Word
from .queries import SEL, rate, telemetry
from .reasons import NO_JETSON, NO_TRACE

CLOCKS = Row(
    "Clocks, cores and memory",
    (
        Panel(
            "timeseries",
            "Clocks",
            "0 is a gated GPU cluster. A load is a share of what is possible at the clock of that "
            "moment, so read the two together.",
            telemetry(
                "Clocks",
                Query(
                    f"max by (instance) (tegra_cpu_frequency_hertz{{{SEL}}})", "CPU, fastest core"
                ),
            ),
            unit="hertz",
            low=0,
        ),
        Panel(
            "timeseries",
            "CPU cores",
            "Busy share of each core since the line before; a core that is unplugged has none.",
            telemetry("CPU cores"),
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "Memory",
            "CPU and GPU of a Jetson share it. Available is the kernel's estimate; the largest "
            "free block tells how broken up the rest is. A desktop GPU has memory of its own.",
            telemetry("Memory"),
            unit="bytes",
            apart="/total$/",
            width=8,
            low=0,
        ),
        Panel(
            "timeseries",
            "Swap",
            "A board that swaps while it infers has too little memory. Cached swap is in memory "
            "too.",
            telemetry("Swap"),
            unit="bytes",
            apart="/total$/",
            width=8,
            low=0,
        ),
        Panel(
            "timeseries",
            "Cores online",
            "CPU cores that are plugged in; a power mode with fewer watts unplugs some.",
            telemetry(
                "Cores online",
                Query(f"sum by (instance) (tegra_cpu_online{{{SEL}}})", "online", NO_JETSON),
            ),
            width=8,
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
            "Whether each source gives fresh samples. Companions stand beside the line: the "
            "kernel's files, the DLA's trace.",
            (Query(f"tegrascope_source_up{{{SEL}}}", "{{source}}"),),
            words=(Word(0, "down", RED), Word(1, "up", GREEN)),
        ),
        Panel(
            "timeseries",
            "Samples and restarts",
            "Samples in a second by source, and how often it was started again in the last hour.",
            (
                Query(rate("tegrascope_samples_total"), "{{source}}, a second"),
                Query(
                    f"increase(tegrascope_source_restarts_total{{{SEL}}}[1h])",
                    "{{source}}, restarts in 1 h",
                ),
            ),
            low=0,
        ),
        Panel(
            "timeseries",
            "What was not understood",
            "In the last hour: lines that were no record by reason, words of records that are not "
            "known, columns that no signal describes, and what did not go by the book in the "
            "trace of the DLA.",
            (
                Query(
                    f"increase(tegrascope_lines_unparsed_total{{{SEL}}}[1h])",
                    "lines: {{reason}}",
                    "every line was a record",
                ),
                Query(f"increase(tegrascope_tokens_unparsed_total{{{SEL}}}[1h])", "words"),
                Query(f"increase(tegrascope_columns_unknown_total{{{SEL}}}[1h])", "columns"),
                Query(
                    f"increase(tegrascope_dla_trace_errors_total{{{SEL}}}[1h])",
                    "trace: {{reason}}",
                    NO_TRACE,
                ),
            ),
            low=0,
        ),
        Panel(
            "timeseries",
            "Run store",
            "Writes that failed in the last hour; what was in them is kept in memory and tried "
            "again.",
            (
                Query(
                    f"increase(tegrascope_store_write_errors_total{{{SEL}}}[1h])", "failed writes"
                ),
            ),
            low=0,
        ),
        Panel(
            "timeseries",
            "Room for the run store",
            "What is left on the disk that the store is on.",
            (Query(f"tegrascope_store_free_bytes{{{SEL}}}", "room left"),),
            unit="bytes",
            width=8,
            low=0,
        ),
        Panel(
            "timeseries",
            "Cost of the daemon",
            "What tegrascope itself takes of the board: share of one core, without its children.",
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
