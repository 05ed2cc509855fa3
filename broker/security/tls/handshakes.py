"""Lets handshakes take turns, so that many at once do not keep connected clients waiting.

A step of a handshake takes a millisecond or more of public-key arithmetic. Each turn of the event
loop does one step; other connections are served between two steps. The number of unfinished
handshakes is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Handshake(Protocol):
    """A handshake that is under way."""

    def step(self) -> None:
        """Continue with the received bytes."""

    def give_up(self, reason: str) -> None:
        """End the handshake and its connection."""


class Handshakes:
    """The handshakes under way at a listener; the event loop owns them."""

    def __init__(self, count_max: Callable[[], int]) -> None:
        self._count_max = count_max
        self._loop = asyncio.get_running_loop()
        # In the order of their beginning.
        self._under_way: dict[Handshake, None] = {}
        self._waiting: deque[Handshake] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        """Return the number of handshakes under way."""
        return len(self._under_way)

    def begin(self, one: Handshake) -> None:
        """Add a handshake; when there are too many, end the oldest one."""
        self._under_way[one] = None
        if len(self._under_way) > self._count_max():
            oldest = next(iter(self._under_way))
            oldest.give_up("odradek.tls.handshakes.max later handshakes have begun")

    def end(self, one: Handshake) -> None:
        """Forget a handshake that is done or lost."""
        self._under_way.pop(one, None)

    def ask(self, one: Handshake) -> None:
        """Let a handshake take a step when its turn comes."""
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
