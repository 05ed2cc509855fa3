"""Ports of the loopback address for servers of tests."""

from __future__ import annotations

import os
import socket
from collections import deque

_HELD_PORTS_MAX = 200
_held_ports: deque[int] = deque()  # their descriptors, until this process ends


def free_port() -> int:
    """Return a port of the loopback address that is free, and hardly taken by chance later.

    The system gives it to no other socket while it is among the last ports requested here.
    Otherwise, before its process listens, the system might give it to another broker, or to a
    client that connects: even to one that checks whether the port is open, and then connects to
    itself. A process that listens on the port by number must set SO_REUSEADDR, as servers do.
    """
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        _held_ports.append(bound.detach())
    if len(_held_ports) > _HELD_PORTS_MAX:
        os.close(_held_ports.popleft())
    return port
