"""The rules as they are shipped, and the cases that promtool runs on them."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "grafana" / "prometheus"
RULES = [*sorted((SHIPPED / "rules").glob("*.yml")), SHIPPED / "receiver-rules.yml"]
CASES = sorted((Path(__file__).parent / "cases").glob("*.yml"))

_DURATIONS = {
    "for", "group_interval", "group_wait", "interval", "keep_firing_for", "repeat_interval",
}  # fmt: skip
_CASE = re.compile(r"(?P<alert>\w+) (?P<kind>fires|does not fire|resolves): \S.*")


@dataclass(frozen=True)
class Case:
    """One test of promtool that is of one alert.

    Attributes:
        alert: Its name.
        kind: ``fires``, ``does not fire`` or ``resolves``, as its name says.
        counts: How many such alerts it expects, from moment to moment.
    """

    alert: str
    kind: str
    counts: tuple[int, ...]

    @property
    def is_what_it_says(self) -> bool:
        """Whether it expects what its kind means."""
        return {
            "fires": any(self.counts),
            "does not fire": bool(self.counts) and not any(self.counts),
            "resolves": len(self.counts) > 1 and self.counts[0] > 0 and self.counts[-1] == 0,
        }[self.kind]


def read_rules(path: Path) -> list[dict[str, Any]]:
    """Return the rules of a file, of all its groups."""
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@cache
def alerts() -> dict[str, dict[str, Any]]:
    """Return every shipped alert, by name."""
    found = [rule for path in RULES for rule in read_rules(path) if "alert" in rule]
    return {rule["alert"]: rule for rule in found}


@cache
def cases() -> list[Case]:
    """Return every case whose name says that it is of an alert."""
    found = []
    for path in CASES:
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
            match = _CASE.fullmatch(test["name"])
            if match is not None:
                moments = sorted(
                    (seconds(one["eval_time"]), len(one.get("exp_alerts") or ()))
                    for one in test["alert_rule_test"]
                    if one["alertname"] == match["alert"]
                )
                counts = tuple(count for _, count in moments)
                found.append(Case(match["alert"], match["kind"], counts))
    return found


def of_a_simulated_fleet(document: dict[str, Any]) -> dict[str, Any]:
    """Return the resolving cases of a file with more labels, and with more that must hold.

    Every series and every alert that is expected has labels of a target, and of a simulated board:
    what an alert says of a device must not depend on what else its target is labelled with. And in
    each case the alert was pending first, as its ``for`` has it, and fired for a while after its
    reason was gone, as its ``keep_firing_for`` has it.
    """
    kept = []
    for test in document["tests"]:
        match = _CASE.fullmatch(test["name"])
        if match is None or match["kind"] != "resolves":
            continue
        series = [
            {**one, "series": _with(one["series"], _added(one["series"]))}
            for one in test["input_series"]
        ]
        moments = [
            {
                **moment,
                "exp_alerts": [
                    {**alert, "exp_labels": {**alert["exp_labels"], **_added(moment["alertname"])}}
                    for alert in moment["exp_alerts"]
                ],
            }
            for moment in test["alert_rule_test"]
        ]
        held = _held(match["alert"], moments[-1]["eval_time"], document["evaluation_interval"])
        more = {"input_series": series, "alert_rule_test": moments, "promql_expr_test": held}
        kept.append({**test, **more})
    rule_files = [str((CASES[0].parent / path).resolve()) for path in document["rule_files"]]
    return {**document, "rule_files": rule_files, "tests": kept}


def _held(alert: str, end: str, interval: str) -> list[dict[str, Any]]:
    state = f'ALERTS{{alertname="{alert}",alertstate="%s"}}'
    after = f"{state % 'firing'} unless on (instance) ({alerts()[alert]['expr']})"
    return [
        {
            "expr": f"count(max_over_time(({query})[{end}:{interval}])) > bool 0",
            "eval_time": end,
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for query in (state % "pending", after)
    ]


def _added(name: str) -> dict[str, str]:
    # What is said of the daemon itself is not simulated.
    of_the_board = re.match("tegra(?!scope)", name.lower()) is not None
    return {"site": "x", **({"simulated": "true"} if of_the_board else {})}


def _with(series: str, labels: dict[str, str]) -> str:
    name, _, rest = series.partition("{")
    kept = rest.replace(',simulated="true"', "")
    return f"{name}{{{','.join(f'{key}={value!r}' for key, value in labels.items())},{kept}"


def seconds(duration: str) -> int:
    """Read a duration of Prometheus, as ``1h30m``."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    parts = re.findall(r"(\d+)([smhdw])", duration)
    assert "".join(map("".join, parts)) == duration, duration
    return sum(int(number) * units[unit] for number, unit in parts)


def shortened(document: Any, by: int) -> Any:
    """Return a file of rules, or of Alertmanager, with every duration a fraction of what it was.

    Args:
        document: As YAML has it.
        by: What divides pauses, holding times, and the ranges in expressions.
    """
    if isinstance(document, list):
        return [shortened(one, by) for one in document]
    if not isinstance(document, dict):
        return document
    made = {}
    for key, value in document.items():
        if key in _DURATIONS:
            made[key] = _fraction(value, by)
        elif key == "expr":
            made[key] = re.sub(
                r"(?<=[\[:])(\d+[smhd])(?=[\]:])",
                lambda found: _fraction(found[1], by),
                str(value),
            )
        else:
            made[key] = shortened(value, by)
    return made


def _fraction(duration: str, by: int) -> str:
    return f"{seconds(duration) * 1000 // by}ms"
