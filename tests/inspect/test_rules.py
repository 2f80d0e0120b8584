"""Every rule of the data judges right: a model that breaks it, and its like that keeps it."""

import pytest

from tegrascope.daemon.inspect.rules import all_rules, line_of, lines, operators, rules_of
from tegrascope.parsers.errors import Mendable

from .cases import CASES, Case
from .made import inspected, rules_broken, target_of

RULES = {rule.id: rule for rule in all_rules()}


def oldest(rule: str) -> str:
    """Return the oldest TensorRT that has a rule."""
    return next(
        line.name for line in lines() if rule in {one.id for one in rules_of(line.name).rules}
    )


def test_each_rule_has_a_case_and_no_case_is_left_over():
    """A rule that nothing breaks, or that nothing keeps, could say anything."""
    assert len(RULES) == len(all_rules())
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("rule", sorted(CASES))
def test_broken(rule, tmp_path):
    """The node is refused, by that rule, and its outcome is the rule's."""
    case: Case = CASES[rule]
    line = case.line or oldest(rule)
    found = target_of(inspected(case.breaks, tmp_path, line=line, precision=case.precision))
    assert rule in rules_broken(found)
    others = {RULES[one].outcome for one in rules_broken(found)}
    assert found.placement == ("gpu" if "gpu" in others else "unknown")
    (finding,) = [one for one in found.findings if one.rule == rule]
    assert finding.is_open == (RULES[rule].outcome == "unknown")
    assert finding.page and finding.requirement and finding.found


@pytest.mark.parametrize("rule", sorted(CASES))
def test_kept(rule, tmp_path):
    """Its like, one thing changed, breaks no rule at all and runs on the DLA."""
    case: Case = CASES[rule]
    line = case.keeps_line or case.line or oldest(rule)
    precision = case.keeps_precision or case.precision
    found = target_of(inspected(case.keeps, tmp_path, line=line, precision=precision))
    assert rules_broken(found) == set()
    assert found.placement == "dla"


@pytest.mark.parametrize("line", [one.name for one in lines()])
def test_the_data_fits_together(line):
    """Each page has a title, each rule one condition, and each name of a layer is used."""
    rules = rules_of(line)
    kinds = {one.layer for one in operators().values()} | {"scale", "*"}
    for rule in rules.rules:
        assert rule.page in rules.pages
        given = [rule.within, rule.outside, rule.one_of, rule.none_of]
        assert sum(one is not None for one in given) == 1, rule.id
        assert set(rule.layers) <= kinds, rule.id
        # What helps is known: from the rule, or else from the operator.
        assert rule.hint or rule.measure in ("is_supported", "operation"), rule.id
    assert rules.supported <= kinds


def test_releases_find_their_line():
    """Any release with a DLA finds its rules; one without is told so."""
    assert line_of("8.5.2.2-1+cuda11.4").name == "8.5"
    assert [line_of(one).name for one in ("8.6.2", "10.0.1", "10.7.0.23", "11.4.1.2")] == [
        "8.6",
        "10.3",
        "10.3",
        "11.4",
    ]
    for gone in ("8.0", "10.8.0", "10.16.2", "11.0", "11.4.0", "12.1", "newest"):
        assert line_of(gone) is None, gone
        with pytest.raises(Mendable, match="name one of 8"):
            rules_of(gone)
