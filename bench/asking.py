"""A connection to a broker by which benchmarks ask one request at a time."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, TypeVar

from odradek.protocol.compiler import decode
from odradek.protocol.frames import SIZE, encode_request, read_response_header

T = TypeVar("T")
_TIMEOUT_S = 30


class Connection:
    """A connection to a port of this machine."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def ask(self, request: Any, version: int, response: type[T]) -> T:
        """Send a request; return its answer."""
        frame = self.answer(encode_request(request, version, 1, "bench"))
        _, position = read_response_header(memoryview(frame), response, version)
        return decode(response, version, frame[position:])

    def answer(self, request: bytes) -> bytes:
        """Send a framed request; return the frame of its answer, without its size."""
        self._socket.sendall(request)
        (size,) = SIZE.unpack(self._stream.read(SIZE.size))
        return self._stream.read(size)
