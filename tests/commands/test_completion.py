"""Completions: the words that the parser knows, offered by a real shell."""

import shutil
import subprocess

import pytest

from tegrascope.workbench.cli import main
from tegrascope.workbench.commands import COMMANDS

# Call the function as Tab does, and print what is offered.
_CALLS = {
    "bash": 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tegrascope; echo "${COMPREPLY[*]}"',
    "zsh": 'words=("$@"); CURRENT=$#; _tegrascope',
}
_BEFORE = {
    "bash": "",
    "zsh": 'compdef() { :; }; compadd() { shift; print -r -- "$*" }; _files() { print files }',
}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], {*COMMANDS}),
        (["runs", ""], {"list", "show", "export"}),
        (["runs", "export", "-f", ""], {"csv", "parquet", "jsonl", "perfetto"}),
        (["parse", "robot.log", "--format", ""], {"csv", "parquet", "jsonl", "dataset"}),
        (["report", "--"], {"--help", "--since", "--run", "-o", "--output", "--state-dir"}),
    ],
)
def test_shell_offers_the_words_of_the_parser(shell, words, expected, capsys):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}: apt install {shell}")
    assert main(["completion", shell]) == 0
    script = f"{_BEFORE[shell]}\n{capsys.readouterr().out}\n{_CALLS[shell]}"
    done = subprocess.run(
        [program, "-c", script, shell, "tegrascope", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    found = {word for word in done.stdout.split() if word.startswith(words[-1])}
    assert found == {word for word in expected if word.startswith(words[-1])}


def test_files_are_offered_where_no_option_is_begun(capsys):
    main(["completion", "bash"])
    script = f"{capsys.readouterr().out}\n{_CALLS['bash']}"
    done = subprocess.run(
        ["bash", "-c", script, "bash", "tegrascope", "parse", ""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "\n"
    assert "complete -o default" in script
