"""Suspends the search for cyclic garbage while many short-lived objects are made.

Python searches all objects once the surviving ones have grown by a quarter. The objects behind
/metrics, 90,000 with 5,000 partitions, do not survive, but look as if they would; and the search
holds up all threads for 150 ms and more. Neither do the objects of a large request: searches took
50 ms, while its slices take 5.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic

# The time between two searches while short-lived objects are made without an end.
_LOOK_EVERY_S = 30.0
# A commit to the disk takes less.
LINGER_S = 0.1


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend the search for garbage while the body makes objects that are dropped at its end.

    Bodies may overlap: the one that began first ends it for all, and restores the former state.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Uncollected:
    """Suspends the search for garbage between `begin` and `end`, but for a look now and then.

    The search resumes a while after `end`: a request that awaits the disk between two of its
    steps is not searched meanwhile.
    """

    __slots__ = ("_body", "_ended_s", "_is_used", "_looked_s", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._body: ExitStack | None = None
        self._is_used = False
        self._looked_s = self._ended_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Suspend the search, unless it is suspended."""
        self._is_used = True
        if self._body is not None:
            self.look()
            return
        self._body, self._looked_s = ExitStack(), monotonic()
        self._body.enter_context(uncollected())

    def look(self) -> None:
        """Search for garbage if the last search was long ago."""
        now_s = monotonic()
        if self._body is not None and now_s - self._looked_s > _LOOK_EVERY_S:
            self._looked_s = now_s
            gc.collect()

    def end(self) -> None:
        """Resume the search after a while, unless it is suspended again by then."""
        self._is_used, self._ended_s = False, monotonic()
        if self._timer is None and self._body is not None:
            self._timer = self._loop.call_later(LINGER_S, self._resume)

    def close(self) -> None:
        """Resume the search at once."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        body, self._body = self._body, None
        if body is not None:
            body.close()

    def _resume(self) -> None:
        self._timer = None
        left_s = self._ended_s + LINGER_S - monotonic()
        if self._is_used:
            return  # the next `end` begins a time of its own
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._resume)
        else:
            self.close()
