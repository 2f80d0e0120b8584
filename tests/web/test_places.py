"""Places for connections: who has to leave when there is none left."""

import resource

import pytest

from tegrascope.daemon.places import Places, State


def test_longest_dawdler_leaves_first():
    """Silent or idle, who dawdles longest goes; who is being answered goes last."""
    left: list[str] = []
    places = Places(at_most=4)
    taken = {name: places.take(lambda name=name: left.append(name)) for name in "abcd"}
    places.change(taken["a"], State.ANSWERED)
    places.change(taken["b"], State.IDLE)
    for name in "efghi":
        taken[name] = places.take(lambda name=name: left.append(name))
        places.change(taken[name], State.ANSWERED)
        assert len(places) == 4
    assert left == ["c", "d", "b", "a", "e"]  # b was idle later than c and d were silent


def test_place_is_given_back_once():
    """Who leaves makes room, and does not free another's place by leaving twice."""
    left: list[str] = []
    places = Places(at_most=2)
    first, second = (places.take(lambda name=name: left.append(name)) for name in "ab")
    places.give_back(first)
    places.give_back(first)
    places.change(first, State.IDLE)
    places.take(lambda: left.append("c"))
    assert (len(places), left) == (2, [])
    places.free_one()
    places.free_one()
    places.free_one()
    assert (len(places), left) == (0, ["b", "c"])
    places.give_back(second)


@pytest.mark.parametrize(("soft", "count"), [(1024, 64), (100, 25), (2, 1)])
def test_limit_of_open_files_is_minded(monkeypatch, soft, count):
    """A low limit leaves three quarters of the files to the store, sources and workers."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, 4096))
    assert Places().at_most == count
