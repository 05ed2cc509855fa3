"""Members of groups as clients see them, which give things up before they take others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(kw_only=True)
class Holder(Generic[T]):
    """A member that holds partitions or tasks, and what it believes."""

    epoch: int = 0
    # What it is assigned, and what it has at this moment.
    assigned: set[T] = field(default_factory=set)
    owned: set[T] = field(default_factory=set)
    # Whether the next heartbeat has all fields: the last one failed, or it begins.
    must_tell_all: bool = True

    def reset(self) -> None:
        """Give everything up and begin again."""
        self.epoch, self.must_tell_all = 0, True
        self.assigned, self.owned = set(), set()

    def give_up(self) -> None:
        """Stop using what is not assigned any more."""
        self.owned &= self.assigned

    def take(self) -> None:
        """Begin to use what is assigned, after all else has been given up."""
        self.give_up()
        self.owned |= self.assigned
