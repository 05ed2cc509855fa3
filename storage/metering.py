"""Counts the requests to an object store that one piece of work needs, in all of its threads.

    with metered() as meter:     each request of this context is added once it has ended

A context follows a coroutine. A thread has one of its own, unless the code that gives it work
gives it a context, too: so the read-ahead has that of its reader.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StoreUse:
    """Requests as a bill has them: each attempt by itself, a LIST as a PUT, a HEAD as a GET.

    Deletions are free, and not among them.
    """

    puts: int = 0
    gets: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def __add__(self, other: StoreUse) -> StoreUse:
        return StoreUse(
            self.puts + other.puts,
            self.gets + other.gets,
            self.sent_bytes + other.sent_bytes,
            self.received_bytes + other.received_bytes,
        )


class Meter:
    """The requests of a piece of work so far; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._use = StoreUse()

    @property
    def use(self) -> StoreUse:
        """The requests that have ended."""
        return self._use

    def add(self, use: StoreUse) -> None:
        """Add requests."""
        with self._lock:
            self._use += use


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


def present_meter() -> Meter | None:
    """Return the meter of this context, None if nobody counts."""
    return _METER.get()


@contextmanager
def metered() -> Iterator[Meter]:
    """Count the requests of this context; those of an outer meter go on after it."""
    meter = Meter()
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)
