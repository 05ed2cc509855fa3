"""The HTTP port that all workers of a machine serve, as each of them has it from their start.

All accept connections at its sockets, so that the port is served while one of them is away. Each
has a private socket, too, at which the others ask it (neighbours.py).

At their first start one worker answers that they start. It opens the port before the others do:
no client that was served hears afterwards that they are still starting.
"""

from __future__ import annotations

import mmap
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from odradek.broker.web.admin_token import AdminToken
from odradek.dataclass import dataclass


class Opening:
    """Whether a worker has opened the port, in memory that all processes share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 1)

    def note(self) -> None:
        """Note that the port is open."""
        self._memory[0] = 1

    def is_noted(self) -> bool:
        """Return whether the port is open."""
        return bool(self._memory[0])


@dataclass(frozen=True, slots=True)
class SharedPort:
    """A worker's part of the HTTP port."""

    sockets: Sequence[socket.socket]
    token: AdminToken
    # The private socket of each worker, by node id, in a folder of their user.
    paths: Mapping[int, Path]
    # Whether this worker answers that they start, until it may open the port.
    answers_first: bool
    may_open: Callable[[], bool]
    opened: Callable[[], None]
    all_stop: Callable[[], bool]
