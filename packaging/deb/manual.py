"""Man pages out of the help texts."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from unittest.mock import patch

from tegrascope import __version__
from tegrascope.collectors.board.power import main as power
from tegrascope.collectors.dla.reader import main as dla_trace
from tegrascope.collectors.gpu.switch_reader import main as gpu_trace
from tegrascope.collectors.processes.memory_reader import main as memory
from tegrascope.workbench.cli import main as tegrascope
from tegrascope.workbench.commands import COMMANDS

HEAD = """\
.TH {title} 1 "" "tegrascope {version}"
.SH NAME
{name} \\- {summary}
.SH SYNOPSIS
"""
FILES = """\
.SH FILES
.TP
.I /etc/tegrascope.yaml
The configuration of the service. Examples are in
.IR /usr/share/doc/tegrascope/examples .
.TP
.I /etc/default/tegrascope
The interval of root's tegrastats.
.TP
.I /var/lib/tegrascope
Runs, samples and engines.
"""


def head(name: str, summary: str) -> str:
    """Return the beginning of a page."""
    escaped = name.replace("-", "\\-")
    return HEAD.format(title=escaped.upper(), version=__version__, name=escaped, summary=summary)


def help_of(main: Callable[[list[str]], int], *words: str) -> str:
    """Return the help text of a program or of one of its commands, for the formatter."""
    printed = io.StringIO()
    settings = {"COLUMNS": "80", "HOME": "/HOME"}
    with patch.dict("os.environ", settings), redirect_stdout(printed), suppress(SystemExit):
        main([*words, "--help"])
    text = printed.getvalue().replace("/HOME/", "~/")
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    lines = (f"\\&{line}" if line.startswith(".") else line for line in escaped.splitlines())
    return "\n".join((".nf", *lines, ".fi", ""))


def pages() -> dict[str, str]:
    """Return the text of each man page, by the name of its program."""
    summary = "measure neural networks on NVIDIA Jetson, for Prometheus"
    main = head("tegrascope", summary) + help_of(tegrascope)
    for command in COMMANDS:
        main += f".SH TEGRASCOPE {command.upper()}\n" + help_of(tegrascope, command)
    reader = head("tegrascope-dla-trace", "print what the driver of the DLA traces, as root")
    reader += help_of(dla_trace).replace(dla_trace.__module__, "tegrascope\\-dla\\-trace")
    switches = head("tegrascope-gpu-trace", "print how long each process was on the GPU, as root")
    switches += help_of(gpu_trace).replace(gpu_trace.__module__, "tegrascope\\-gpu\\-trace")
    sizes = head("tegrascope-memory", "print the memory of each process, as root")
    sizes += help_of(memory).replace(memory.__module__, "tegrascope\\-memory")
    unit = head("tegrascope-power", "set power modes for clients, and restore them, as root")
    unit += help_of(power).replace(power.__module__, "tegrascope\\-power")
    return {
        "tegrascope": main + FILES,
        "tegrascope-dla-trace": reader,
        "tegrascope-gpu-trace": switches,
        "tegrascope-memory": sizes,
        "tegrascope-power": unit,
    }
