"""All checks, one group after another: none may hang, and none may end the others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...parsers.records import Record
from .board import check_board
from .bounded import finishes
from .clocks import check_clocks
from .dla import check_dla
from .finding import TENSORRT_SECONDS, Finding, Patient
from .inference import check_inference
from .room import check_room
from .service import check_service
from .telemetry import check_telemetry
from .workloads import check_workloads

Check = Callable[[Patient], Iterator[Finding]]

# By the order in which they are told. A group takes so long at most: its own programs have
# shorter limits, so only what the kernel holds on to comes as far.
GROUPS: tuple[tuple[str, Check, float], ...] = (
    ("board", check_board, 10.0),
    ("telemetry", check_telemetry, 30.0),
    ("dla", check_dla, 15.0),
    ("inference", check_inference, TENSORRT_SECONDS + 40.0),
    ("workloads", check_workloads, TENSORRT_SECONDS + 10.0),
    ("clock", check_clocks, 10.0),
    ("room", check_room, 10.0),
    ("service", check_service, 20.0),
)


class Told(Record):
    """One finding, with the group that it stands in.

    Attributes:
        group: Name of the group.
        finding: The finding.
    """

    group: str
    finding: Finding


@dataclass
class _Watched:
    found: list[Finding]
    problem: str | None = None


def examine(
    patient: Patient, groups: tuple[tuple[str, Check, float], ...] = GROUPS
) -> Iterator[Told]:
    """Yield what each group finds, as soon as it is done.

    Args:
        patient: Who is examined.
        groups: Names, checks, and how many seconds each may take.
    """
    for name, check, seconds in groups:
        for finding in _watch(patient, name, check, seconds):
            yield Told(group=name, finding=finding)


def _watch(patient: Patient, name: str, check: Check, seconds: float) -> list[Finding]:
    state = _Watched([])

    def work() -> None:
        try:
            for finding in check(patient):
                state.found.append(finding)
        except Exception as error:
            state.problem = f"the check failed in itself ({type(error).__name__}: {error})"

    in_time = finishes(work, seconds, name)
    found, problem = list(state.found), state.problem
    if not in_time:
        problem = f"no answer within {seconds:g} s after {len(found)} finding(s)"
    if problem is not None:
        found.append(
            Finding(
                check=name,
                level="broken",
                said=problem,
                mend="see dmesg; if it persists, send us this line",
            )
        )
    return found
