"""Ports that tests give to brokers are nobody else's."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque

import pytest

from odradek.testing import ports
from odradek.testing.ports import free_port

# Linux 6.3 and later; Python has no name for it.
_IP_LOCAL_PORT_RANGE = 51


def limited_to(port: int) -> socket.socket:
    """Return a socket for which the system can choose one port alone."""
    made = socket.socket()
    bounds = (port | port << 16).to_bytes(4, "little")
    try:
        made.setsockopt(socket.SOL_IP, _IP_LOCAL_PORT_RANGE, bounds)
    except OSError:
        made.close()
        pytest.skip("this system does not let a socket say which ports it may be given")
    return made


def refused_bind(port: int, *, reuses: bool) -> int | None:
    with limited_to(port) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuses)
        try:
            one.bind(("127.0.0.1", 0))
        except OSError as error:
            return error.errno
    return None


def test_a_free_port_is_chosen_for_nobody_else_until_many_more_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "_held_ports", deque())
    port = free_port()
    assert refused_bind(port, reuses=False) == errno.EADDRINUSE
    assert refused_bind(port, reuses=True) == errno.EADDRINUSE
    with limited_to(port) as one, pytest.raises(OSError, match="Cannot assign"):
        one.connect(("127.0.0.1", port))  # it would be connected to itself
    with socket.create_server(("127.0.0.1", port)) as server:
        socket.create_connection(("127.0.0.1", port)).close()
        server.accept()[0].close()
    for _ in range(ports._HELD_PORTS_MAX):
        free_port()
    assert refused_bind(port, reuses=True) is None
    for held in ports._held_ports:
        os.close(held)
