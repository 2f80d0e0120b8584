"""Programs that are run to their end cannot fill our memory or keep us for ever."""

import subprocess
import sys

import pytest

from tegrascope.collectors.children.bounded import run_bounded
from tegrascope.collectors.children.program import ask_child
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.records import Record

PATIENCE_SECONDS = 120.0


def python(code):
    return [sys.executable, "-c", code]


def test_output_errors_and_status_are_returned():
    code = "import sys; print('out'); print('error', file=sys.stderr); sys.exit(3)"
    done = run_bounded(python(code), PATIENCE_SECONDS)
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"error\n", 3)


def test_joined_errors_are_part_of_the_output():
    code = "import sys; print('error', file=sys.stderr)"
    assert run_bounded(python(code), PATIENCE_SECONDS, joins_errors=True).stdout == b"error\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_ends_the_program(stream):
    code = f"import sys\nwhile True: sys.{stream}.write('x' * 65536)"
    with pytest.raises(OSError, match="prints more than 1000000 bytes"):
        run_bounded(python(code), PATIENCE_SECONDS, most_bytes=1_000_000)


def test_program_that_does_not_end_is_ended():
    with pytest.raises(subprocess.TimeoutExpired):
        run_bounded(python("import time; time.sleep(600)"), 0.2)


def test_program_that_closes_its_output_and_goes_on_is_ended():
    code = "import os, time; os.close(1); os.close(2); time.sleep(600)"
    with pytest.raises(subprocess.TimeoutExpired):
        run_bounded(python(code), 2.0)


def test_missing_program_is_an_error_of_the_system():
    with pytest.raises(FileNotFoundError):
        run_bounded(["/nonexistent/program"], PATIENCE_SECONDS)


class Answer(Record):
    """What the child prints."""

    value: int


def test_answer_of_a_child_is_found_among_other_lines():
    command = python("print('noise'); print('{\"value\": 5}'); print('more')")
    assert ask_child(command, Answer, "library", "a question", PATIENCE_SECONDS) == Answer(value=5)


def test_child_that_ends_without_an_answer_is_an_error_with_its_last_words():
    command = python("import sys; sys.exit('no driver')")
    answer = ask_child(command, Answer, "library", "a question", PATIENCE_SECONDS)
    assert isinstance(answer, UserError)
    assert "no driver" in str(answer)


def test_memory_beyond_the_limit_is_an_error_and_no_limit_is_none():
    module = "from tegrascope.collectors.children.bounded import limit_memory"
    for limit, words in (("64 << 20", b"MemoryError"), ("None", b"")):
        code = f"{module}; limit_memory({limit}); bytearray(256 << 20)"
        done = run_bounded(python(code), PATIENCE_SECONDS)
        assert (done.returncode != 0, words in done.stderr) == (bool(words), True)
