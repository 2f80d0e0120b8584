"""Differences between two versions of an output, and the outputs that are compared by shape."""

import hashlib
import io
import json
import math
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

Output = Any

# JSON keys and metrics that were renamed since: old name to new name. Both are accepted.
KEYS = {
    "said": "message",
    "remedy": "remedy",
    "able": "ok",
    "stops": "blocking",
    "looked_at": "evaluated",
    "least_bad": "closest_infeasible",
    "shortfalls": "violations",
    "says": "requirement",
    "words": "message",
    "what": "kind",
}
METRICS = {"tegrascope_dla_trace_troubles_total": "tegrascope_dla_trace_errors_total"}
# Added since.
ADDED = {"tegrascope_columns_unknown_total"}
# They follow from renamed keys, and from how a search goes.
IGNORED = {"schema_version", "evaluated"}
# Of one live run these are withheld where it keeps step with the sampling, as chance has it.
WITHHELD = {
    "tegra_inference_last_run_energy_joules_per_inference",
    "gross_joules_per_inference",
    "net_joules_per_inference",
}
WORDS = "(words) "
"""Marks a difference of prose, which need not be a failure."""

# Label values that differ from run to run or from machine to machine.
_FREE_LABELS = {"version", "run_id", "python", "pid", "instance", "flag"}


def shown(done: "subprocess.CompletedProcess[str]", kind: str) -> Output:
    """Return what a command printed, as it is compared."""
    found: dict[str, Output] = {"status": done.returncode}
    if kind == "json":
        found["json"] = json.loads(done.stdout) if done.stdout else None
    elif kind == "runs":
        found["json"] = [json.loads(line) for line in done.stdout.splitlines()]
        for run in found["json"]:
            run["environment"].pop("versions", None)
    elif kind == "csv head":
        found["columns"] = done.stdout.partition("\n")[0].split(",")
    else:
        found["lines"] = done.stdout.splitlines()
    numbers = re.findall(r"\b\d[\d,. ]*\b", done.stderr.strip().rpartition("\n")[2])
    if kind in ("csv", "jsonl"):
        found["counts"] = numbers
    return found


def table(frame: Any, log: str | None = None) -> Output:
    """Return types, length and digest of a table."""
    if log is not None:
        frame = frame.assign(log=log)
    text = io.StringIO()
    frame.to_csv(text, index=False)
    return {
        "types": {name: str(dtype) for name, dtype in frame.dtypes.items() if name != "log"},
        "rows": len(frame),
        "digest": hashlib.sha256(text.getvalue().encode()).hexdigest(),
    }


def families(page: str) -> Output:
    """Return type, help, labels and label values of every family of a metrics page."""
    found: dict[str, dict[str, Any]] = {}
    for line in page.splitlines():
        kind, _, rest = line.removeprefix("# ").partition(" ")
        if line.startswith(("# HELP", "# TYPE", "# UNIT")):
            name, _, text = rest.partition(" ")
            found.setdefault(name, {"labels": {}})[kind.lower()] = text
        elif line and not line.startswith("#"):
            series = re.match(r"(\w+)(?:\{(.*?)\})? ", line)
            assert series, line
            base = re.sub(r"_(bucket|sum|count|created|total)$", "", series[1])
            name = next(one for one in (series[1], base, f"{base}_total") if one in found)
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', series[2] or ""):
                values = found[name]["labels"].setdefault(label, [])
                shown = "*" if label in _FREE_LABELS else value
                if shown not in values:
                    values.append(shown)
                    values.sort()
    return found


def schema(value: Output) -> Output:
    """Return keys and types of a document; the items of a list are merged."""
    if isinstance(value, dict):
        return {key: schema(one) for key, one in value.items()}
    if isinstance(value, list):
        merged: Output = None
        for one in value:
            merged = _merged(merged, schema(one))
        return [merged]
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return None if value is None else "text"


def _merged(one: Output, other: Output) -> Output:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        return {key: _merged(one.get(key), other.get(key)) for key in keys}
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])] if one and other else one or other
    return other if one is None else one


def differences(was: Output, now: Output, path: str = "", *, within: float = 0.0) -> Iterator[str]:
    """Yield each difference, with its path; renamed keys and metrics are the same.

    Args:
        was: What was recorded.
        now: What is the case now.
        path: Of both in the whole.
        within: Relative difference of two numbers that counts as none.
    """
    if isinstance(was, str) and isinstance(now, str) and was != now and was[:1] == now[:1] == "{":
        with suppress(ValueError):
            yield from differences(json.loads(was), json.loads(now), path, within=within)
            return
    if isinstance(was, dict) and isinstance(now, dict):
        was, now = _renamed(was), _renamed(now)
        for key in [*was, *(key for key in now if key not in was)]:
            if key in IGNORED:
                continue
            if key in WITHHELD and any(_is_shape(one.get(key, {})) for one in (was, now)):
                continue
            if key not in now:
                yield f"{path}/{key}: missing, was {_text(was[key])}"
            elif key not in was and key not in ADDED:
                yield f"{path}/{key}: new, {_text(now[key])}"
            elif key in was:
                yield from differences(was[key], now[key], f"{path}/{key}", within=within)
    elif isinstance(was, list) and isinstance(now, list):
        for number, (one, other) in enumerate(zip(was, now, strict=False)):
            yield from differences(one, other, f"{path}[{number}]", within=within)
        if len(was) != len(now):
            yield f"{path}: {len(was)} items before, {len(now)} now"
    elif was != now and not _are_close(was, now, within):
        sort = WORDS if _is_prose(was) and _is_prose(now) else ""
        yield f"{path}: {sort}was {_text(was)}, is {_text(now)}"


def _is_shape(value: Output) -> bool:
    return value == "number" or isinstance(value, dict)


def _are_close(was: Output, now: Output, within: float) -> bool:
    if not isinstance(was, (int, float)) or not isinstance(now, (int, float)):
        return False
    return math.isclose(was, now, rel_tol=within) or (math.isnan(was) and math.isnan(now))


def _is_prose(value: Output) -> bool:
    return isinstance(value, str) and len(re.findall(r"[A-Za-z]{2,}", value)) > 2


def _renamed(document: Mapping[str, Output]) -> dict[str, Output]:
    found = {}
    for key, value in document.items():
        series = re.match(r"\w+", key)
        name = series[0] if series else key
        new = {**KEYS, **METRICS}.get(name)
        found[key if new is None else new + key[len(name) :]] = value
    return found


def _text(value: Output) -> str:
    text = json.dumps(value)
    return text if len(text) < 200 else f"{text[:200]} …"
