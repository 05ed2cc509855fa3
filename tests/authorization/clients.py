"""Clients that are told apart by their addresses: each is ANONYMOUS at a host of its own.

The whole of 127.0.0.0/8 is loopback, so one machine has as many hosts as ACLs can name. The first
administrator creates the first ACLs while there are none (allow.everyone.if.no.acl.found).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

from odradek.protocol.frames import encode_request
from tests.support.frames import read_frame, response_to

ADMINISTRATOR = "127.0.0.1"
TIMEOUT_S = 60


class Client:
    """One connection from a host, made again when the broker has closed it."""

    def __init__(self, port: int, host: str = ADMINISTRATOR) -> None:
        self.host = host
        self._port = port
        self._socket: socket.socket | None = None

    def ask(self, request: Any, version: int) -> Any:
        """Return the answer to a request; None when the broker closes the connection instead."""
        if self._socket is None:
            self._socket = socket.create_connection(
                ("127.0.0.1", self._port), TIMEOUT_S, (self.host, 0)
            )
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(encode_request(request, version, 1, "a-client"))
        try:
            frame = read_frame(self._socket)
        except TimeoutError as error:
            raise TimeoutError(f"no answer to {request} v{version} from {self.host}") from error
        if frame is None:
            self.close()
            return None
        return response_to(request, version, frame)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def hosts(count: int) -> Iterable[str]:
    """Return so many addresses of clients without rights so far."""
    return [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count)]
