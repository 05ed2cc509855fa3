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
from odradek.protocol.frames import encode_request
from tests.support.forking import ForkedOdradek
from tests.support.frames import read_frame, response_to


@contextmanager
def both_brokers(
    directory: Path, settings: Mapping[str, str]
) -> Iterator[tuple[OdradekProcess, KafkaProcess]]:
    """Start both with the same settings; skip the test where Kafka cannot be had."""
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    ours = ForkedOdradek(directory / "ours", settings)
    theirs = KafkaProcess(directory / "theirs", settings)
    try:
        ours.start()
        theirs.start()
        yield ours, theirs
    finally:
        ours.stop()
        if theirs.process is not None:
            theirs.kill()  # a clean stop of Kafka's takes seconds when it has many topics


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
        self.socket.sendall(encode_request(request, version, 1, self._client_id))
        return response_to(request, version, self.receive())

    def receive(self) -> bytes:
        """Return the next frame; or raise ConnectionError."""
        frame = read_frame(self.socket)
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        return frame
