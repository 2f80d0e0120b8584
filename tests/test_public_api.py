"""What other programs import: there under its stable name, and cheap."""

import subprocess
import sys

import pytest

import tegrascope

LINE = "RAM 936/3964MB (lfb 366x4MB) GR3D_FREQ 99%@921"
PACKAGES = "{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)"


def packages_after(code: str) -> set[str]:
    """Return what a fresh interpreter has imported beyond the standard library."""
    told = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*({PACKAGES}))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.split())


@pytest.mark.parametrize(
    "name", ["ParseError", "RunReport", "Sample", "lock_in", "parse_line", "window"]
)
def test_stable_names_are_there(name):
    """Each name of the contract can be imported, and is said to be public."""
    assert callable(getattr(tegrascope, name))
    assert name in tegrascope.__all__


def test_package_alone_imports_nothing():
    """``import tegrascope`` costs no library at all."""
    assert packages_after("import tegrascope") - packages_after("") == {"tegrascope"}


@pytest.mark.parametrize("name", ["parse_line", "Sample", "ParseError", "RunReport"])
def test_names_cost_no_more_than_pydantic(name):
    """Reading lines needs pydantic and msgspec only: no pandas, no server, no metrics."""
    pydantic = packages_after("from pydantic import BaseModel, Field\nclass A(BaseModel): b: int")
    assert packages_after(f"from tegrascope import {name}") <= pydantic | {"msgspec", "tegrascope"}


def test_reading_a_line_starts_no_event_loop():
    """A program that reads logs does not load asyncio or the daemon for it."""
    code = f"import sys, tegrascope\ntegrascope.parse_line({LINE!r})\nprint(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = told.stdout.split()
    assert "tegrascope.parsers.tegrastats" in modules
    assert "asyncio" not in modules
    assert not any(name.startswith(("tegrascope.daemon", "tegrascope.coll")) for name in modules)


def test_line_becomes_a_sample_or_an_error():
    """``parse_line`` gives a ``Sample``, and raises ``ParseError`` for what is no such line."""
    assert isinstance(tegrascope.parse_line(LINE), tegrascope.Sample)
    with pytest.raises(tegrascope.ParseError) as raised:
        tegrascope.parse_line("Traceback (most recent call last):")
    assert raised.value.line == "Traceback (most recent call last):"


def test_unknown_name_is_an_attribute_error():
    """A name that is not there fails as in any module, so that ``hasattr`` works."""
    assert not hasattr(tegrascope, "parse_lines")


def test_module_runs_as_the_command():
    """``python -m tegrascope`` is the command, and knows its version."""
    told = subprocess.run(
        [sys.executable, "-m", "tegrascope", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (told.stdout, told.stderr) == (f"tegrascope {tegrascope.__version__}\n", "")
