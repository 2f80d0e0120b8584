"""Which TensorRT a model is judged for: the one asked for, the machine's own, or the usual one."""

from ...collectors.backends.tensorrt_probe import tensorrt_version
from ...parsers.readiness.rules import RuleSet, line_of, rules_of

# Of JetPack 6.1 and 6.2, which most boards with a DLA run.
USUAL = "10.3"


def choose_rules(asked: str | None, installed: str | None = None) -> tuple[RuleSet, str]:
    """Return the rules to judge by, and why these.

    Args:
        asked: As given on the command line.
        installed: The machine's TensorRT; by default it is looked for.

    Raises:
        Misused: What was asked for has no DLA.
    """
    if asked is not None:
        return rules_of(asked), "asked for"
    installed = installed or tensorrt_version()
    if installed is not None and line_of(installed) is not None:
        return rules_of(installed), f"TensorRT {installed} is installed here"
    why = "no TensorRT is installed here"
    if installed is not None:
        why = f"TensorRT {installed}, which is installed here, has no DLA"
    rules = rules_of(USUAL)
    return rules, f"{why}; {rules.line.jetpack} have this one, --tensorrt names another"
