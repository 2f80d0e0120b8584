"""The search finds what is best: held against all placements, reckoned by other code."""

import random
from itertools import combinations, product
from math import hypot, inf, prod

import pytest

from tegrascope.workbench.advise.problem import (
    Demand,
    Effect,
    Option,
    Problem,
    closest_infeasible,
    search,
)
from tegrascope.workbench.results.records import Figure

DEVICES = ("gpu", "dla0", "dla1")


def figure(value, half):
    return Figure(value=value, low=value - half, high=value + half)


def demand(name, rate, deadline):
    return Demand(name=name, rate_per_second=rate, deadline_seconds=deadline)


def made(seed):
    """Return tasks and effects as plain numbers: what docs/advise.md says a placement is made of.

    Some can't be met, some have a tie, some were measured together and some were not.
    """
    draw = random.Random(seed)
    count = draw.choice((1, 2, 2, 3, 3, 4, 4, 5))
    strain = draw.uniform(0.2, 1.6) / count
    tasks = []
    for _ in range(count):
        rate = draw.uniform(1, 60)
        options = []
        for device in draw.sample(DEVICES, draw.randint(1, 3)):
            busy = strain * draw.uniform(0.3, 2) / rate
            joules = draw.choice((0.1, 0.2, draw.uniform(0.02, 0.5)))
            options.append(
                {
                    "device": device,
                    "busy": busy,
                    "latency": busy * draw.uniform(1, 1.5),
                    "joules": (joules, draw.choice((0.001, 0.05)) * joules),
                    "gpu": (busy * (draw.uniform(0.7, 1) if device == "gpu" else 0.1), 0.001),
                }
            )
        deadline = draw.choice((1 / rate, draw.uniform(0.5, 3) / rate))
        tasks.append({"rate": rate, "deadline": deadline, "options": options})
    effects = {}
    cells = [(n, o) for n, task in enumerate(tasks) for o in range(len(task["options"]))]
    for size, chance in ((2, 0.5), (3, 0.3)):
        for some in combinations(cells, size):
            if len({n for n, _ in some}) < size or draw.random() > chance:
                continue
            on = [tasks[n]["options"][o]["device"] for n, o in some]
            shares = [on.count(device) for device in on]
            effects[frozenset(some)] = {
                "tail": {
                    n: k * draw.uniform(0.95, 1.8) for (n, _), k in zip(some, shares, strict=True)
                },
                "speed": {
                    n: draw.uniform(0.6, 1.1) / k for (n, _), k in zip(some, shares, strict=True)
                },
                "watts": draw.choice((None, (draw.uniform(-6, 4), draw.choice((0.01, 0.5))))),
            }
    return tasks, effects, draw.choice(("energy", "energy", "gpu")), draw.choice((0.0, 0.1, 0.3))


def as_problem(tasks, effects, objective, margin):
    return Problem(
        tuple(demand(f"m{n}", task["rate"], task["deadline"]) for n, task in enumerate(tasks)),
        tuple(
            tuple(
                Option(
                    one["device"],
                    one["busy"],
                    one["latency"],
                    figure(*one["joules"]),
                    figure(*one["gpu"]),
                )
                for one in task["options"]
            )
            for task in tasks
        ),
        objective,
        margin,
        {
            cells: Effect(
                e["tail"], e["speed"], None if e["watts"] is None else figure(*e["watts"])
            )
            for cells, e in effects.items()
        },
    )


def reckon(tasks, effects, objective, margin, placement):
    """Return the worst ratio, the cost and its parts of one placement, by the page's own words."""
    n = len(tasks)
    options = [tasks[i]["options"][placement[i]] for i in range(n)]
    device = [one["device"] for one in options]
    rate = [task["rate"] for task in tasks]
    share = [rate[i] * options[i]["busy"] for i in range(n)]

    def pair(i, j):
        return effects.get(frozenset({(i, placement[i]), (j, placement[j])}))

    def tail(i, j):
        return max(1.0, pair(i, j)["tail"][i])

    whole = effects.get(frozenset(enumerate(placement))) if n > 1 else None
    alone = [one["latency"] for one in options]
    stretch, slow = [1.0] * n, [1.0] * n
    for i in range(n):
        for there in set(DEVICES) - {device[i]}:
            known = [j for j in range(n) if device[j] == there and pair(i, j)]
            if known:
                stretch[i] *= max(tail(i, j) for j in known)
                slow[i] *= max(1 / min(1.0, pair(i, j)["speed"][i]) for j in known)
    took = [a * k for a, k in zip(alone, stretch, strict=True)]
    need = [a * k for a, k in zip(share, slow, strict=True)]

    def delay(i, j, most=inf):
        if not pair(i, j):
            return took[j]
        return min((tail(i, j) - 1) * alone[i] * max(stretch[i], stretch[j]), most)

    worst = 0.0
    for here in DEVICES:
        mine = [i for i in range(n) if device[i] == here]
        left = 0.0
        if here == "gpu":
            left = sum(rate[i] * options[i]["gpu"][0] for i in range(n) if device[i] != "gpu")
        if not mine:
            worst = max(worst, left)
            continue
        if whole:
            at_once = {i: alone[i] * max(1.0, whole["tail"][i]) for i in mine}
            done = sum(whole["speed"][i] for i in mine)
            load = max(sum(share[i] for i in mine) / done, max(share[i] for i in mine))
        else:
            uncapped = {i: took[i] + sum(delay(i, j) for j in mine if j != i) for i in mine}
            at_once = {
                i: took[i]
                + sum(
                    delay(
                        i,
                        j,
                        took[j] * int(1 + rate[j] * (uncapped[i] + uncapped[j] - took[j])),
                    )
                    for j in mine
                    if j != i
                )
                for i in mine
            }
            pairs = [pair(i, j) for i, j in combinations(mine, 2)]
            done = min((sum(p["speed"].values()) if p else 1.0 for p in pairs), default=1.0)
            load = max(sum(need[i] for i in mine) / done, max(need[i] for i in mine))
        ways = [max(load + left, *(at_once[i] / tasks[i]["deadline"] for i in mine))]
        elsewhere = set(range(n)) - set(mine)
        if len(mine) > 1 and (not whole or all(pair(i, j) for i in mine for j in elsewhere)):
            turn = sum(took[i] for i in mine)
            busy = sum(need[i] for i in mine) + left
            ways.append(max(busy, *(turn / tasks[i]["deadline"] for i in mine)))
        worst = max(worst, min(ways))
    worst *= 1 + margin
    what = "joules" if objective == "energy" else "gpu"
    parts = {(i, placement[i]): (rate[i], *options[i][what]) for i in range(n)}
    if objective == "energy":
        at_it = []
        for i in range(n):
            longer = 1.0
            for j in set(range(n)) - {i}:
                if pair(i, j):
                    longer += (1 / min(1.0, pair(i, j)["speed"][i]) - 1) * min(1.0, share[j])
            at_it.append(min(1.0, share[i] * longer))
        for cells, effect in effects.items():
            if effect["watts"] and all(placement[i] == o for i, o in cells):
                parts[cells] = (prod(at_it[i] for i, _ in cells), *effect["watts"])
    return worst, sum(c * value for c, value, _ in parts.values()), parts


def ties(one, other):
    keys = {*one, *other}
    halves = [
        (one.get(key, (0, 0, 0))[0] - other.get(key, (0, 0, 0))[0])
        * (one.get(key) or other[key])[2]
        for key in keys
    ]
    return hypot(*halves)


@pytest.mark.parametrize("tenth", range(10))
def test_search_agrees_with_all_placements(tenth):
    possible = 0
    for seed in range(tenth * 20, tenth * 20 + 20):
        instance = made(seed)
        problem = as_problem(*instance)
        everything = {
            placement: reckon(*instance, placement)
            for placement in product(*(range(len(task["options"])) for task in instance[0]))
        }
        good = {p: told for p, told in everything.items() if told[0] <= 1}
        found = search(problem)
        assert found.placements == len(everything)
        assert found.evaluated <= len(everything)
        if not good:
            assert found.best is None
            assert found.ranked == ()
            least = min(worst for worst, _, _ in everything.values())
            assert closest_infeasible(problem).worst == pytest.approx(least)
            continue
        possible += 1
        by_cost = sorted(good, key=lambda p: good[p][1])

        def room(one, other, good=good):
            """Return by how much the interval of a difference exceeds it."""
            return ties(good[one][2], good[other][2]) - abs(good[one][1] - good[other][1])

        chosen = found.best.placement
        alike = [p for p in by_cost if p == by_cost[0] or room(by_cost[0], p) >= 0]
        assert chosen in alike, seed
        assert found.best.value == pytest.approx(good[chosen][1])
        assert found.best.worst == pytest.approx(good[chosen][0])
        # More slack only where a cheaper one is known to be better.
        for p in alike:
            if round(good[p][0], 2) < round(good[chosen][0], 2):
                assert any(good[c][1] < good[p][1] and room(c, p) < 1e-9 for c in good), seed
        told = {one.placement for one in found.ties}
        for p in good:
            rooms = [room(p, by_cost[0]), room(p, chosen)]
            if p != chosen and min(map(abs, rooms)) > 1e-9:
                assert (p in told) == (max(rooms) > 0), (seed, p)
        left = [good[p][1] for p in good if p != chosen and p not in told]
        assert (found.runner_up is None) == (not left)
        if left:
            assert found.runner_up.value == pytest.approx(min(left)), seed
    assert 0 < possible < 20


def test_all_placements_of_eight_models_are_looked_at():
    draw = random.Random(7)
    tasks = [
        {
            "rate": 10.0,
            "deadline": 1.0,
            "options": [
                {
                    "device": device,
                    "busy": draw.uniform(0.004, 0.02),
                    "latency": 0.02,
                    "joules": (draw.uniform(0.05, 0.5), 0.001),
                    "gpu": (0.0, 0.0),
                }
                for device in DEVICES
            ],
        }
        for _ in range(8)
    ]
    found = search(as_problem(tasks, {}, "energy", 0.1))
    assert found.placements == 6_561
    assert 6_000 < found.evaluated <= 6_561
    floor = sum(10 * min(one["joules"][0] for one in task["options"]) for task in tasks)
    assert found.best.value >= floor - 1e-9
    assert found.best.worst <= 1


def test_expensive_models_may_be_cheap_together():

    def option(device, joules):
        return Option(device, 0.9, 0.9, figure(joules, 0.001))

    demands = (demand("a", 1.0, 1.0), demand("b", 1.0, 1.0))
    options = (
        (option("gpu", 1.0), option("dla0", 5.0)),
        (option("dla1", 1.0), option("dla1", 2.0)),
    )
    saves = Effect({0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}, figure(-8.0, 0.01))
    effects = {frozenset({(0, 1), (1, 1)}): saves}
    found = search(Problem(demands, options, margin=0.0, effects=effects))
    assert found.best.placement == (1, 1)
    assert found.best.value == pytest.approx(7.0 - 8.0 * 0.81)


def test_figure_without_interval_can_not_tell():
    sure, unsure = Figure(value=1.0, low=0.9, high=1.1), Figure(value=3.0)
    options = (Option("gpu", 0.1, 0.1, unsure), Option("dla0", 0.1, 0.1, sure))
    found = search(Problem((demand("m", 1.0, 1.0),), (options,)))
    assert found.best.placement == (1,)
    assert [one.placement for one in found.ties] == [(0,)]
    assert found.best.half == pytest.approx(0.1)
