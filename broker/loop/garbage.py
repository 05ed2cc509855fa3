"""Suspends the search for cyclic garbage while many short-lived objects are made.

Python searches all objects once the surviving ones have grown by a quarter. The objects behind
/metrics, 90,000 with 5,000 partitions, do not survive, but look as if they would; and the search
holds up all threads for 150 ms and more. Neither do the objects of a large request: searches took
50 ms, while its slices take 5.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic

# The time between two searches while short-lived objects are made without an end.
_LOOK_EVERY_S = 30.0


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
    """Suspends the search for garbage between `begin` and `end`, but for a `look` now and then."""

    __slots__ = ("_body", "_since_s")

    def __init__(self) -> None:
        self._body: ExitStack | None = None
        self._since_s = 0.0

    def begin(self) -> None:
        """Suspend the search, unless it is suspended."""
        if self._body is None:
            self._body, self._since_s = ExitStack(), monotonic()
            self._body.enter_context(uncollected())

    def look(self) -> None:
        """Search for garbage if the last search was long ago."""
        now_s = monotonic()
        if self._body is not None and now_s - self._since_s > _LOOK_EVERY_S:
            self._since_s = now_s
            gc.collect()

    def end(self) -> None:
        """Resume the search."""
        body, self._body = self._body, None
        if body is not None:
            body.close()
