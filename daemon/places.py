"""The connections that there may be at once; where a newcomer finds no place, a dawdler leaves."""

import gc
import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

# Many times what scrapers and browsers hold open, and little enough memory if all are idle.
_AT_MOST = 64
# The rest is for the store, sources and workers.
_SHARE_OF_FILES = 4


class State(Enum):
    """What a connection does."""

    SILENT = "has never asked for anything: half a request, half a handshake, or nothing"
    IDLE = "was answered, and may ask again"
    ANSWERED = "is being answered"


@dataclass(eq=False)
class Place:
    """One connection's.

    Attributes:
        leave: Cuts it off; it is not waited for.
        state: What it does.
    """

    leave: Callable[[], object]
    state: State = field(default=State.SILENT)


class Places:
    """Gives places to connections, and takes them away from who dawdles longest.

    A newcomer is the last in that line, so a flood has to be faster than its request.

    Attributes:
        at_most: So many there are.
    """

    def __init__(self, at_most: int | None = None) -> None:
        """Say how many; else as many as the limit of open files has room for."""
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        room = _AT_MOST if soft == resource.RLIM_INFINITY else soft // _SHARE_OF_FILES
        self.at_most = at_most or max(1, min(_AT_MOST, room))
        # One that changes its state goes to the end: the first has dawdled longest.
        self._taken: dict[Place, None] = {}
        self._cut_off = 0

    def __len__(self) -> int:
        """Return how many are taken."""
        return len(self._taken)

    def take(self, leave: Callable[[], object]) -> Place:
        """Give a place, if need be that of whoever dawdles longest."""
        if len(self._taken) >= self.at_most:
            self.free_one()
        place = Place(leave)
        self._taken[place] = None
        return place

    def free_one(self) -> None:
        """Cut off who dawdles longest, if anybody is there."""
        if self._taken:
            place = min(self._taken, key=lambda one: one.state is State.ANSWERED)
            self.give_back(place)
            place.leave()
            self._cut_off += 1
            # What a connection leaves behind is in circles, which are found too late in a flood.
            if self._cut_off % self.at_most == 0:
                gc.collect()

    def change(self, place: Place, state: State) -> None:
        """Note what a connection does now."""
        place.state = state
        if place in self._taken:
            del self._taken[place]
            self._taken[place] = None

    def give_back(self, place: Place) -> None:
        """Note that a connection is over; twice does no harm."""
        self._taken.pop(place, None)
