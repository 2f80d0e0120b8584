"""The commands that a person starts: one module each; here the list of all commands.

``daemon/commands`` has those of the service, and what the commands of both rooms share.
"""

from importlib import import_module
from types import MappingProxyType

from ...daemon.commands import Commands, add_command

# Name and summary, in the order of the help.
COMMANDS = MappingProxyType(
    {
        "run": "the daemon: telemetry, schedule, store and HTTP",
        "bench": "compare a model across accelerators: latency, energy, GPU freed, right answers",
        "advise": "recommend an accelerator for each model, from results of bench",
        "verify": "run a pipeline and say whether it keeps what advise promised",
        "compare": "the difference of two results or runs, and its possible causes",
        "inspect": "list the nodes of a model that a DLA rejects, the rules broken, and remedies",
        "exec": "run any program as a measured window; the exit code is the program's",
        "parse": "turn tegrastats lines into records",
        "correlate": "pair runs with recorded logs: energy, load and flags of each",
        "simulate": "print the tegrastats lines of a simulated board",
        "top": "a live screen of a daemon, made for a small window over SSH",
        "runs": "list, show and export stored runs",
        "report": "write stored runs and telemetry as one page of HTML",
        "engines": "list, build and remove TensorRT engines, and calibrate int8",
        "service": "install or remove the systemd units",
        "check-config": "validate a configuration; every error with its line",
        "doctor": "check this machine: what it has, what is missing, and how to fix it",
        "prove": "check on this board what is believed about boards, and write a file to send",
        "completion": "print a script that completes commands and options in bash or zsh",
    }
)
OF_THE_SERVICE = frozenset({"run", "service", "check-config"})


def load(commands: Commands, name: str) -> None:
    """Import the module of a command and add the command."""
    file = "execute" if name == "exec" else name.replace("-", "_")
    room = "daemon" if name in OF_THE_SERVICE else "workbench"
    module = import_module(f"...{room}.commands.{file}", __name__)
    run = getattr(module, "run", None)
    module.add(add_command(commands, name, run, module.EXAMPLE, COMMANDS[name]))
