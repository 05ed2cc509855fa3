"""One connection to a running broker, Kafka's or ours, one request at a time."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any

from protocol.compiler import decode
from protocol.frames import encode_request, read_response_header
from protocol.messages import message_classes


class Peer:
    """Asks one request after the other on a connection of its own."""

    def __init__(self, port: int, client_id: str = "a-client") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.socket.settimeout(60)
        self._client_id = client_id

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """Send a request at a version, and return the response; or raise ConnectionError."""
        response = message_classes(type(request).__name__.removesuffix("Request"))[1]
        self.socket.sendall(encode_request(request, version, 1, self._client_id))
        frame = memoryview(self._read(int.from_bytes(self._read(4), "big")))
        _, position = read_response_header(frame, response, version)
        return decode(response, version, frame, position)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data
