"""The commands: one module each, with its arguments and its function.

A module is imported only for its own command. Logic belongs in the folder of the tool.
"""

from types import MappingProxyType

# Name and summary, in the order of the help.
COMMANDS = MappingProxyType(
    {
        "run": "the daemon: telemetry, schedule, store and HTTP",
        "bench": "compare a model across accelerators: latency, energy, GPU freed, right answers",
        "advise": "recommend an accelerator for each model, from results of bench",
        "inspect": "list the nodes of a model that a DLA rejects, the rules broken, and remedies",
        "exec": "run any program as a measured window; the exit code is the program's",
        "parse": "turn tegrastats lines into records",
        "correlate": "pair runs with recorded logs: energy, load and flags of each",
        "simulate": "print the tegrastats lines of a simulated board",
        "top": "a live screen of a daemon, made for a small window over SSH",
        "runs": "list, show and export stored runs",
        "report": "write stored runs and telemetry as one page of HTML",
        "engines": "list, build and remove TensorRT engines",
        "service": "install or remove the systemd units",
        "check-config": "validate a configuration; every error with its line",
        "doctor": "check this machine: what it has, what is missing, and how to fix it",
    }
)
