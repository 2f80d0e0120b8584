"""The regular expressions of our modules, and texts that make a slow one slow.

``python -m tests.expressions`` reads cases and applies each. Python's ``re`` answers no signal
handler while it works, so a timer of CPU time ends the whole process at an expression that is slow.
"""

import ast
import importlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

ROOT = Path(__file__).parents[1]
ROOMS = ("parsers", "collectors", "daemon", "workbench")
METHODS = frozenset({"match", "fullmatch", "search", "sub", "split", "findall", "finditer"})
# As long as the longest line that is read from a child.
LONGEST_TEXT = 64 * 1024
# A linear expression takes a few milliseconds for such a text, a quadratic one several seconds.
CPU_SECONDS = 1.0


class Expression(NamedTuple):
    """An expression, where it is written, and the methods with which it is used."""

    where: str
    pattern: re.Pattern[str]
    methods: frozenset[str]


class Case(NamedTuple):
    """Texts for one expression."""

    where: str
    pattern: str
    flags: int
    methods: list[str]
    texts: list[str]


def find_expressions(room: str) -> Iterator[Expression]:
    """Yield each expression over text that the code of a room contains."""
    for path in sorted((ROOT / room).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "import re\n" in source:
            yield from _find_in(path, ast.parse(source))


def _find_in(path: Path, tree: ast.Module) -> Iterator[Expression]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    module = importlib.import_module(".".join(("tegrascope", *parts)))
    names_by_call = _names_by_call(tree)
    used = list(_used_methods(tree))
    own = {"re", *names_by_call.values()}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not _is_of_re(call.func):
            continue
        method = call.func.attr
        if method != "compile" and method not in METHODS:
            continue
        try:
            pattern = eval(_code_of(call, method), dict(vars(module)))
        except NameError:
            continue  # A pattern that a function composes from our own data.
        if isinstance(pattern.pattern, bytes):
            continue  # Those read our own static files.
        methods = frozenset({method})
        if method == "compile":
            name = names_by_call.get(call)
            methods = frozenset(used_method for owner, used_method in used if owner == name)
            # One in a table is called under the name that it has in a loop.
            # ``split`` is mostly that of a text there.
            other = {used_method for owner, used_method in used if owner not in own}
            methods = methods or frozenset(other - {"split"})
        yield Expression(f"{path.relative_to(ROOT)}:{call.lineno}", pattern, methods)


def _is_of_re(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
    )


def _code_of(call: ast.Call, method: str) -> CodeType:
    """Return code that compiles the expression of a call of ``re``."""
    arguments = call.args if method == "compile" else call.args[:1]
    flags = [keyword for keyword in call.keywords if keyword.arg == "flags"]
    function = ast.Attribute(ast.Name("re", ast.Load()), "compile", ast.Load())
    compiled = ast.Call(function, arguments, flags)
    return compile(ast.fix_missing_locations(ast.Expression(compiled)), "<expression>", "eval")


def _names_by_call(tree: ast.Module) -> dict[ast.expr, str]:
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.value] = node.targets[0].id
    return names


def _used_methods(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield node.value.id if isinstance(node.value, ast.Name) else "", node.attr


def examples_of(pattern: re.Pattern[str], count: int = 3) -> list[str]:
    """Return texts that the expression matches, the same at each call."""
    try:
        return _examples_of(pattern, count, is_whole=True)
    except Unsatisfiable:  # It looks at what is before or behind its match.
        return _examples_of(pattern, count, is_whole=False)


def _examples_of(pattern: re.Pattern[str], count: int, *, is_whole: bool) -> list[str]:
    found: dict[str, None] = {}

    @settings(
        max_examples=40,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.from_regex(pattern, fullmatch=is_whole, alphabet=st.characters()))
    def collect(text: str) -> None:
        found.setdefault(text)

    collect()
    return sorted(found, key=lambda text: (abs(len(text) - 24), text))[:count]


def hard_texts(example: str, length: int = LONGEST_TEXT) -> Iterator[str]:
    """Yield long texts that begin as an example does, and repeat one part of it.

    Each ends in what no expression expects, so that every other way to read it is tried.
    """
    short = example[:48]
    parts = {(begin, begin + width) for begin in range(len(short)) for width in (1, 2)}
    parts |= {(0, end) for end in range(len(short), 2, -5)}
    for begin, end in sorted(parts):
        part = short[begin:end]
        pumped = short[:begin] + part * (length // len(part))
        yield pumped + "\0"
        yield pumped + short[end:] + "\0"


def _apply(pattern: re.Pattern[str], method: str, text: str) -> None:
    if method == "sub":
        pattern.sub("", text)
    elif method == "finditer":
        list(pattern.finditer(text))
    else:
        getattr(pattern, method)(text)


def slow_ones(expressions: Iterable[Expression]) -> list[str]:
    """Return the expressions that need more CPU time than a linear one, with their places."""
    cases = []
    for expression in expressions:
        pattern, methods = expression.pattern, sorted(expression.methods)
        texts = examples_of(pattern)
        cases.append(Case(expression.where, pattern.pattern, pattern.flags, methods, texts))
    slow = []
    while cases:
        done = subprocess.run(
            [sys.executable, "-m", "tests.expressions"],
            input="".join(f"{json.dumps(case)}\n" for case in cases),
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
        if done.returncode == 0:
            break
        if done.returncode != -signal.SIGPROF:
            raise AssertionError(f"status {done.returncode}")
        number = int(done.stdout.split()[-1])
        slow.append(f"{cases[number].where}: {cases[number].pattern}")
        cases = cases[number + 1 :]
    return slow


def main() -> int:
    """Apply the expressions of standard input, each to its texts."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for number, line in enumerate(sys.stdin):
        case = Case(*json.loads(line))
        print(number, flush=True)
        pattern = re.compile(case.pattern, case.flags)
        for example in case.texts:
            for text in hard_texts(example):
                for method in case.methods:
                    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
                    _apply(pattern, method, text)
                    signal.setitimer(signal.ITIMER_PROF, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
