"""When Python looks for garbage that refers to itself: not while much is made for a moment.

Python looks through all objects once those that stay have grown by a quarter. What /metrics is
made of, 90,000 objects with 5,000 partitions, does not stay, but looks as if it would; and the
look holds all threads up, for 150 ms and more. Nor does what a large request is made of: looks
took 50 ms where its slices are of 5.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic

# There is a look all the same when much is made without an end.
_LOOK_EVERY_S = 30.0


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no garbage looked for while the body makes what is dropped at its end.

    Bodies may overlap: the one that began first ends it for all, and leaves things as they were.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Uncollected:
    """Has no garbage looked for between `begin` and `end`, but now and then at a `look`."""

    __slots__ = ("_body", "_since_s")

    def __init__(self) -> None:
        self._body: ExitStack | None = None
        self._since_s = 0.0

    def begin(self) -> None:
        """Begin, unless it has begun."""
        if self._body is None:
            self._body, self._since_s = ExitStack(), monotonic()
            self._body.enter_context(uncollected())

    def look(self) -> None:
        """Look for garbage when nobody has for long."""
        now_s = monotonic()
        if self._body is not None and now_s - self._since_s > _LOOK_EVERY_S:
            self._since_s = now_s
            gc.collect()

    def end(self) -> None:
        """Let garbage be looked for again."""
        body, self._body = self._body, None
        if body is not None:
            body.close()
