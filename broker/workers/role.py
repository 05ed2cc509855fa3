"""A broker's part among the workers of one machine."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.web.united.port import SharedPort
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """The parts that a worker has from the process that started it."""

    number: int
    """Its number, from 1."""
    port: SharedPort | None
    """Its part of the HTTP port, None when HTTP is not served."""
    beat: Callable[[], None]
    """Shows that its event loop works."""
    rest: Callable[[], None]
    """Says that it stops, and beats no more."""
    stop_fd: int
    """The read end of a pipe, at its end once all workers are to stop."""
