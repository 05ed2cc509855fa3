"""A broker's part among the workers of one machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """The parts that a worker has from the process that started it."""

    number: int
    """Its number, from 1."""
    http_sockets: Sequence[socket.socket]
    """The bound sockets of the HTTP listener, which all workers have."""
    beat: Callable[[], None]
    """Shows that its event loop works."""
    stop_fd: int
    """The read end of a pipe, at its end once all workers are to stop."""
