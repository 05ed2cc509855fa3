"""Frames of Kafka's protocol on a socket that blocks."""

from __future__ import annotations

import socket
from typing import Any

from odradek.protocol.compiler import decode
from odradek.protocol.frames import read_response_header
from odradek.protocol.messages import message_classes


def read_exactly(connection: socket.socket, size: int) -> bytes | None:
    """Read so many bytes; return None when the stream ends before, or is reset."""
    data = bytearray()
    while len(data) < size:
        try:
            more = connection.recv(size - len(data))
        except ConnectionError:
            return None
        if not more:
            return None
        data += more
    return bytes(data)


def read_frame(connection: socket.socket) -> bytes | None:
    """Read a frame without its size; return None when the stream ends instead."""
    head = read_exactly(connection, 4)
    return None if head is None else read_exactly(connection, int.from_bytes(head, "big"))


def response_to(request: Any, version: int, frame: bytes) -> Any:
    """Decode the response to a request."""
    cls = message_classes(type(request).__name__.removesuffix("Request"))[1]
    _, position = read_response_header(memoryview(frame), cls, version)
    return decode(cls, version, frame[position:])
