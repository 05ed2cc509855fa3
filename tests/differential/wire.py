"""Brokers as the other end of a connection: bytes go in, and what comes of them is an outcome."""

from __future__ import annotations

import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Any, Literal

from odradek.protocol.compiler import decode
from odradek.protocol.frames import encode_request, read_response_header
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.frames import read_frame, response_to

TIMEOUT_S = 30
_PING_ID = 0x7A11
_PING = encode_request(ApiVersionsRequest(), 0, _PING_ID, "a-client")
CLIENT_ID = "a-client"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request: its answer, or none; and how it is with the connection then."""

    answer: bytes | None
    connection: Literal["open", "closed", "silent"]

    def __str__(self) -> str:
        said = "no answer" if self.answer is None else f"an answer of {len(self.answer)} bytes"
        return f"{said}, {self.connection}"


class Peer:
    """A broker, asked over one connection for as long as it leaves that open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._client: socket.socket | None = None

    def send(self, frame: bytes) -> None:
        """Send a frame, and after it a request that tells when the frame is done with."""
        if self._client is None:
            self._client = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
        with contextlib.suppress(ConnectionError):  # receive() will see it closed
            self._client.sendall(frame + _PING)

    def receive(self) -> Outcome:
        """Return what came of the frame that was sent."""
        assert self._client is not None
        answer = None
        try:
            while (frame := read_frame(self._client)) is not None:
                if frame[:4] == struct.pack(">i", _PING_ID):
                    return Outcome(answer, "open")
                answer = frame
        except TimeoutError:
            self.close()
            return Outcome(answer, "silent")
        self.close()
        return Outcome(answer, "closed")

    def ask(self, request: Any, version: int) -> Any:
        """Return the answer to a request that has one."""
        self.send(encode_request(request, version, 1, CLIENT_ID))
        outcome = self.receive()
        assert outcome.answer is not None, f"{type(request).__name__}: {outcome}"
        return response_to(request, version, outcome.answer)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._client is not None:
            self._client.close()
            self._client = None


def read_answer(api_name: str, version: int, frame: bytes) -> Any:
    """Decode the answer of an API."""
    cls = message_classes(api_name)[1]
    _, position = read_response_header(memoryview(frame), cls, version)
    return decode(cls, version, frame[position:])
