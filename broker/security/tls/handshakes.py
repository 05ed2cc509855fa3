"""Lets handshakes take turns, so that many at once do not keep connected clients waiting.

A step of a handshake takes a millisecond or more of public-key arithmetic. One is done each time
round the event loop; between two of them everybody else is served. Of handshakes that do not get
on only so many are kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Handshake(Protocol):
    """One that is under way."""

    def step(self) -> None:
        """Go on with what has come."""

    def give_up(self, reason: str) -> None:
        """End it, and the connection."""


class Handshakes:
    """The handshakes under way at a listener; the event loop owns them."""

    def __init__(self, count_max: Callable[[], int]) -> None:
        self._count_max = count_max
        self._loop = asyncio.get_running_loop()
        # In the order in which they began.
        self._under_way: dict[Handshake, None] = {}
        self._waiting: deque[Handshake] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        """Count those under way."""
        return len(self._under_way)

    def begin(self, one: Handshake) -> None:
        """Note a handshake; the oldest one makes room when there are too many."""
        self._under_way[one] = None
        if len(self._under_way) > self._count_max():
            oldest = next(iter(self._under_way))
            oldest.give_up("odradek.tls.handshakes.max others have begun since")

    def end(self, one: Handshake) -> None:
        """Forget one that is done, or lost."""
        self._under_way.pop(one, None)

    def ask(self, one: Handshake) -> None:
        """Let a handshake take a step once it is its turn."""
        self._waiting.append(one)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        while self._waiting:
            one = self._waiting.popleft()
            if one in self._under_way:
                one.step()
                break
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)
