"""The commands: one module each, with its arguments and its function.

A module is imported only when its command is asked for. Logic that another part could use belongs
in the tool's own folder.
"""

from types import MappingProxyType

# Name and summary, in the order of the help.
COMMANDS = MappingProxyType(
    {
        "run": "the daemon: telemetry, schedule, store and HTTP",
        "bench": "compare a model across accelerators: latency, energy, GPU freed, right answers",
        "advise": "say which accelerator suits which model, from results of bench",
        "inspect": "list the nodes of a model that a DLA rejects, the rules broken, and remedies",
        "exec": "run any program as a measured window; the exit code is the program's",
        "parse": "turn tegrastats lines into records",
        "correlate": "pair runs with recorded logs: energy, load and flags of each",
        "simulate": "print the tegrastats lines of a simulated board",
        "top": "a live screen of a daemon, made for a small window over SSH",
        "runs": "look at the run store",
        "report": "write stored runs and telemetry as one page of HTML",
        "engines": "look at, build and remove TensorRT engines",
        "service": "put the systemd units in place, or take them away",
        "check-config": "validate a configuration; every error with its line",
        "doctor": "say what this machine has, what is missing, and what mends it",
    }
)
