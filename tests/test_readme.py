"""A newcomer runs the blocks of README, in their order, in a fresh checkout: all of them work."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.daemons import start
from tests.pages import README, ROOT, blocks, sessions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["start"]

NOT_COPIED = (".*", "__pycache__", "*.egg-info", "build", "dist", "shared")
PATIENCE_SECONDS = 900
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Modules that Python finds at its start, and what every environment has.
ALWAYS = {"pip", "setuptools"}
HIDES = """
import os, sys

class Hidden:
    names = frozenset(os.environ["NOT_INSTALLED"].split())

    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def extras_of(text: str) -> list[str]:
    """Return the extras that the commands of a text install from the checkout."""
    found = []
    for command in re.findall(r"^pip install (.*)$", text, re.MULTILINE):
        option, requirement = shlex.split(command, comments=True)
        assert option == "-e"
        assert requirement.startswith(".["), f"{requirement} is not of the checkout"
        found += requirement[2:-1].split(",")
    return found


def distributions(extras: list[str]) -> set[str]:
    """Return the names of all packages that an installation with these extras has."""
    waiting = [*PROJECT["dependencies"]]
    for extra in extras:
        waiting += PROJECT["optional-dependencies"][extra]
    found = ALWAYS | {"tegrascope"}
    while waiting:
        requirement = Requirement(waiting.pop())
        name = requirement.name.lower().replace("_", "-")
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if name == "tegrascope":
            for extra in requirement.extras:
                waiting += PROJECT["optional-dependencies"][extra]
        elif name not in found:
            found.add(name)
            try:
                waiting += requires(name) or []
            except PackageNotFoundError:
                continue  # nor can a block import it
    return found


def hidden_modules(extras: list[str]) -> list[str]:
    """Return the modules of this environment that one with these extras does not have."""
    present = distributions(extras)
    hidden = []
    for module, names in packages_distributions().items():
        if present.isdisjoint(name.lower().replace("_", "-") for name in names):
            hidden.append(module)
    return sorted(hidden)


def extra_of_the_demo() -> str:
    """Return the extra that ``make run`` installs."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rule = makefile[makefile.index("$(VENV)/.run:") :]
    found = re.search(r"call install,(\w+)", rule)
    assert found is not None
    return found[1]


class Checkout:
    """A fresh copy of this tree, and the environment that ``make run`` makes in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
        programs = folder / ".venv/bin"
        programs.mkdir(parents=True)
        python = shlex.quote(sys.executable)
        for name, command in (
            ("tegrascope", f"exec {python} -m tegrascope"),
            ("python", f"exec {python}"),
            ("pip", "exec true"),
        ):
            (programs / name).write_text(f'#!/bin/sh\n{command} "$@"\n')
            (programs / name).chmod(0o755)
        (programs / "activate").write_text(f"PATH={shlex.quote(str(programs))}:$PATH\n")
        self._hooks = folder.with_name("hooks")
        self._hooks.mkdir()
        (self._hooks / "sitecustomize.py").write_text(HIDES)

    def run(self, text: str, extras: list[str], *, status: int = 0) -> str:
        """Run commands in a shell of this environment, and return what they print."""
        environment = {
            **os.environ,
            "HOME": str(self.folder.with_name("home")),
            "NOT_INSTALLED": " ".join(hidden_modules(extras)),
            "PATH": f"{self.folder}/.venv/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(self._hooks),
        }
        done = subprocess.run(
            ["bash", "-e", "-c", text],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return Checkout(tmp_path_factory.mktemp("fresh") / "tegrascope")


def commands():
    """Yield each block that a newcomer runs, with all that was installed up to it."""
    extras = [extra_of_the_demo()]
    for block in blocks(README, "sh", "python"):
        if block.mark == "board":
            continue
        extras = [*extras, *extras_of(block.text)]
        yield pytest.param(block, extras, id=f"line {block.line}")


@pytest.mark.parametrize(("block", "extras"), list(commands()))
def test_block_runs_as_printed_with_what_is_installed(checkout, block, extras):
    text = block.text
    if block.language == "python":
        text = f"python -c {shlex.quote(text)}"
    # It answers by its status, too: the GPU has a node of ResNet-50.
    is_inspected = text.splitlines()[-1].startswith("tegrascope inspect ")
    checkout.run(text, extras, status=3 if is_inspected else 0)


def test_module_that_is_not_installed_is_not_there(checkout):
    """So a block without its installation fails, though this environment has everything."""
    with pytest.raises(AssertionError, match=r"pandas is not installed: .*pip install pandas"):
        checkout.run("tegrascope parse -f parquet -o x.parquet /dev/null", ["onnx"])


def test_blocks_for_a_board_are_marked_in_words():
    page = README.read_text(encoding="utf-8").splitlines()
    marked = [block for block in blocks(README, "sh") if block.mark]
    assert marked
    for block in marked:
        assert block.mark == "board"
        words = " ".join(page[block.line - 5 : block.line - 1])
        assert "on a board" in words.lower(), block.line


def test_first_command_of_the_second_terminal_activates_the_environment():
    _, second = blocks(README, "console")
    assert next(sessions(second))[0] == ". .venv/bin/activate"


def masked(line: str) -> str:
    """Return a line without its figures, ids and flags, which differ from run to run."""
    line = re.sub(r" · (gross energy per|flags) [^·]+(?= ·)", "", line)
    # An id has eight hexadecimal digits or more; the digits of a fraction are none.
    line = re.sub(r"\b(?<!\.)(?=[a-f]*\d)[0-9a-f]{8}[0-9a-f-]*\b", "N", line)
    line = re.sub(r"\d+(?:[.:,-]\d+)*(?:e[+-]?\d+)?", "N", line)
    return " ".join(line.split())


def row(line: str) -> list[str]:
    """Return the cells of a run up to its figures, whose units and intervals differ."""
    cells = re.split(r" {2,}", line.strip())
    return [masked(cell) for cell in cells[:5]]


def shortened_demo() -> str:
    """Return the demo with one short run of each workload, one behind the other."""
    demo = (ROOT / "daemon/commands/demo.yaml").read_text(encoding="utf-8")
    for pattern, instead in (
        (r"duration: \w+", "duration: 1500ms"),
        (r"every: \w+", "every: 1h"),
        (r"offset: (\d+)s", r"offset: \1ms"),
        (r"baseline: \w+", "baseline: 100ms"),
        (r"runs_per_start: \d+", "runs_per_start: 1"),
    ):
        demo = re.sub(pattern, instead, demo)
    return demo


def test_demo_prints_what_the_page_shows(checkout, start):
    """The figures differ, and the page may leave out lines and rows."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed: apt install curl")
    first, second = blocks(README, "console")
    [(command, printed)] = sessions(first)
    assert command == "make run"
    recipe = subprocess.run(
        ["make", "-n", "run"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "tegrascope run --demo --state-dir .state" in recipe

    demo = shortened_demo()
    daemon = start(demo)
    (checkout.folder / ".state").symlink_to(daemon.state_dir)
    daemon.wait_for(lambda: len(daemon.runs()) >= demo.count("{name: "), PATIENCE_SECONDS)
    log = iter(map(masked, daemon.log))
    for line in printed:
        if line != "…":
            assert masked(line) in log, line

    for command, shown in sessions(second):
        here = command.replace("127.0.0.1:9754", daemon.address)
        found = checkout.run(here, [extra_of_the_demo()]).splitlines()
        if "runs list" in command:
            assert found[0].split() == shown[0].split()
            rows = list(map(row, found[1:]))
            assert [line for line in shown[1:] if line != "…" and row(line) not in rows] == []
        else:
            assert list(map(masked, found)) == list(map(masked, shown))
