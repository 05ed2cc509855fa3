"""A broker of ours beside Kafka's, and connections to either, one request at a time."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from bench.processes import KafkaProcess, OdradekProcess, kafka_libs
from odradek.protocol.compiler import decode
from odradek.protocol.frames import encode_request, read_response_header
from odradek.protocol.messages import message_classes


@contextmanager
def both_brokers(
    directory: Path, settings: Mapping[str, str]
) -> Iterator[tuple[OdradekProcess, KafkaProcess]]:
    """Start both with the same settings; skip the test where Kafka cannot be had."""
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    ours = OdradekProcess(directory / "ours", settings)
    theirs = KafkaProcess(directory / "theirs", settings)
    try:
        ours.start()
        theirs.start()
        yield ours, theirs
    finally:
        ours.stop()
        theirs.stop()


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
