"""The HTTP port that all workers of a machine serve, as each of them has it from their start.

All accept connections at its sockets, so that the port is served while one of them is away. Each
has a private socket, too, at which the others ask it (neighbours.py).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the library is loaded by the process that starts the workers
    from odradek.broker.web.access import AdminToken


@dataclass(frozen=True, slots=True)
class SharedPort:
    """A worker's part of the HTTP port."""

    sockets: Sequence[socket.socket]
    token: AdminToken
    # The private socket of each worker, by node id, in a folder of their user.
    paths: Mapping[int, Path]
    # Whether this worker answers that they start, until all serve.
    answers_first: bool
    all_serve: Callable[[], bool]
    all_stop: Callable[[], bool]
