"""The search finds what is best: held against all placements, reckoned by other code."""

import random
from itertools import combinations, product
from math import hypot, prod

import pytest

from tegrascope.daemon.advise.problem import (
    Effect,
    Option,
    Problem,
    RatedModel,
    closest_infeasible,
    search,
)
from tegrascope.daemon.results.records import Figure

DEVICES = ("gpu", "dla0", "dla1")


def figure(value, half):
    return Figure(value=value, low=value - half, high=value + half)


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
        tuple(
            RatedModel(
                f"m{n}",
                task["rate"],
                task["deadline"],
                tuple(
                    Option(
                        one["device"],
                        one["busy"],
                        one["latency"],
                        figure(*one["joules"]),
                        figure(*one["gpu"]),
                    )
                    for one in task["options"]
                ),
            )
            for n, task in enumerate(tasks)
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

    whole = effects.get(frozenset(enumerate(placement))) if n > 1 else None
    worst = 0.0
    for i in range(n):
        latency = options[i]["latency"]
        if whole:
            latency *= max(1.0, whole["tail"][i])
        else:
            wait = 0.0
            for j in set(range(n)) - {i}:
                if pair(i, j):
                    latency *= max(1.0, pair(i, j)["tail"][i])
                elif device[i] == device[j]:
                    wait += options[j]["latency"]
            latency += wait
        worst = max(worst, latency * (1 + margin) / tasks[i]["deadline"])
    for here in DEVICES:
        mine = [i for i in range(n) if device[i] == here]
        load = 0.0
        if whole and mine:
            done = sum(whole["speed"][i] for i in mine)
            load = max(sum(share[i] for i in mine) / done, max(share[i] for i in mine))
        elif mine:
            largest = 0.0
            for i in mine:
                slow = 1.0
                for j in set(range(n)) - set(mine):
                    slow /= min(1.0, pair(i, j)["speed"][i]) if pair(i, j) else 1.0
                load += share[i] * slow
                largest = max(largest, share[i] * slow)
            pairs = [pair(i, j) for i, j in combinations(mine, 2)]
            if pairs:
                load /= min(sum(one["speed"].values()) if one else 1.0 for one in pairs)
            load = max(load, largest)
        if here == "gpu":
            load += sum(rate[i] * options[i]["gpu"][0] for i in range(n) if device[i] != "gpu")
        worst = max(worst, load * (1 + margin))
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
        cost = min(value for _, value, _ in good.values())
        assert found.best.value == pytest.approx(cost), seed
        best = good[found.best.placement]
        assert best[1] == pytest.approx(cost)
        told = {one.placement for one in found.ties}
        worse = []
        for placement, (_, value, parts) in good.items():
            room = ties(best[2], parts) - (value - best[1])
            if placement != found.best.placement and abs(room) > 1e-9:
                assert (placement in told) == (room > 0), (seed, placement)
                worse += [value] if room < 0 else []
        if worse:
            runner_up = next(one for one in found.ranked[1:] if one.placement not in told)
            assert runner_up.value == pytest.approx(min(worse)), seed
        if len(good) > 1:
            second = sorted(value for _, value, _ in good.values())[1]
            assert found.ranked[1].value == pytest.approx(second)
    assert 0 < possible < 20


def test_ten_models_are_searched_without_looking_at_all():
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
        for _ in range(10)
    ]
    found = search(as_problem(tasks, {}, "energy", 0.1))
    assert found.placements == 59_049
    assert found.evaluated < 5_000
    floor = sum(10 * min(one["joules"][0] for one in task["options"]) for task in tasks)
    assert found.best.value >= floor - 1e-9
    assert found.best.worst <= 1


def test_expensive_models_may_be_cheap_together():

    def option(device, joules):
        return Option(device, 0.9, 0.9, figure(joules, 0.001))

    tasks = (
        RatedModel("a", 1.0, 1.0, (option("gpu", 1.0), option("dla0", 5.0))),
        RatedModel("b", 1.0, 1.0, (option("dla1", 1.0), option("dla1", 2.0))),
    )
    saves = Effect({0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}, figure(-8.0, 0.01))
    found = search(Problem(tasks, margin=0.0, effects={frozenset({(0, 1), (1, 1)}): saves}))
    assert found.best.placement == (1, 1)
    assert found.best.value == pytest.approx(7.0 - 8.0 * 0.81)


def test_figure_without_interval_can_not_tell():
    sure, unsure = Figure(value=1.0, low=0.9, high=1.1), Figure(value=3.0)
    task = RatedModel(
        "m",
        1.0,
        1.0,
        (Option("gpu", 0.1, 0.1, unsure), Option("dla0", 0.1, 0.1, sure)),
    )
    found = search(Problem((task,)))
    assert found.best.placement == (1,)
    assert [one.placement for one in found.ties] == [(0,)]
    assert found.best.half == pytest.approx(0.1)
