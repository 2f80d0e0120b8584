"""``tegrascope completion bash|zsh``: static scripts, out of the arguments of all commands."""

import argparse
from collections.abc import Iterable
from typing import Any

from ...daemon.commands import Options
from . import COMMANDS, load

_BASH = """\
_tegrascope() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} found=
  local one=${{COMP_WORDS[1]}} two=${{COMP_WORDS[2]}}
  if ((COMP_CWORD == 1)); then one= two=; elif ((COMP_CWORD == 2)); then two=; fi
  case "$one $two $prev" in
{cases}  esac
  # Options are offered where one is begun; elsewhere files are more likely.
  local hidden='-*'; if [[ $cur == -* ]]; then hidden=; fi
  COMPREPLY=($(compgen -W "$found" -X "$hidden" -- "$cur"))
}}
complete -o default -F _tegrascope tegrascope
"""
# Works when it is sourced, and as a file _tegrascope in $fpath.
_ZSH = """\
#compdef tegrascope
_tegrascope() {{
  local one=$words[2] two=$words[3] prev=$words[CURRENT-1] found=
  if ((CURRENT == 2)); then one= two=; elif ((CURRENT == 3)); then two=; fi
  case "$one $two $prev" in
{cases}  esac
  local -a known=(${{=found}})
  if [[ $words[CURRENT] != -* ]]; then known=(${{known:#-*}}); fi
  compadd -- $known || _files
}}
if [[ $funcstack[1] == _tegrascope ]]; then _tegrascope; else compdef _tegrascope tegrascope; fi
"""


class _Recorder:
    """Notes the words of a command, in place of argparse's parser."""

    def __init__(self, place: str, cases: dict[str, list[str]]) -> None:
        self._place, self._cases = place, cases
        cases[place] = ["--help"]

    def add_parser(self, name: str, **_: Any) -> Any:
        self._cases[self._place].append(name)
        return _Recorder(f"{self._place} {name}".strip(), self._cases)

    def add_argument(self, *names: str, choices: Iterable[object] | None = None, **_: Any) -> None:
        options = [name for name in names if name.startswith("-")]
        self._cases[self._place] += options
        if choices is not None and not isinstance(choices, range):
            for name in options:
                self._cases[f"{self._place}|{name}"] = list(map(str, choices))

    def add_subparsers(self, *_: Any, **__: Any) -> Any:
        return self

    add_argument_group = add_mutually_exclusive_group = add_subparsers

    def set_defaults(self, **_: Any) -> None: ...

    def error(self, message: str) -> None: ...


def script(shell: str) -> str:
    """Return the script of bash or zsh; the Debian package installs both."""
    cases: dict[str, list[str]] = {}
    recorder = _Recorder("", cases)
    for name in COMMANDS:
        load(recorder, name)
    rows = []
    # The first match counts: values of an option, then an action, then its command.
    for place, words in sorted(cases.items(), key=lambda case: ("|" not in case[0], -len(case[0]))):
        where, _, option = place.partition("|")
        command, _, action = where.partition(" ")
        pattern = f'"{command} "'
        if action:
            pattern += f'"{action} "'
        elif command:
            pattern += "*"  # where a command has no action, its second word is anything
        else:
            pattern += '" "'
        rows.append(f"    {pattern}{option or '*'}) found='{' '.join(words)}' ;;\n")
    return (_ZSH if shell == "zsh" else _BASH).format(cases="".join(rows))


def run(arguments: argparse.Namespace) -> int:
    """Print the script of a shell."""
    print(script(arguments.shell), end="")
    return 0


EXAMPLE = (
    "source <(tegrascope completion bash)\n"
    "  tegrascope completion zsh > /usr/local/share/zsh/site-functions/_tegrascope"
)


def add(option: Options) -> None:
    """Add the options."""
    option("shell SHELL", choices=("bash", "zsh"))
