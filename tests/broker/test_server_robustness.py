"""Bytes that are no request: the broker answers Kafka's error or closes, and serves the others."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from bench.processes import OdradekProcess
from odradek.broker.api_table import APIS
from odradek.protocol.compiler import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import encode_request, read_response_header
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.support.frames import read_frame

FRAMES = 300
TIMEOUT_S = 60


def _ask(broker: OdradekProcess, data: bytes) -> bytes | None:
    """Send bytes on a new connection; return the answer's frame, None when it is closed."""
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as client:
        client.settimeout(TIMEOUT_S)
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            return read_frame(client)
        except ConnectionError:
            return None


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _serves(broker: OdradekProcess) -> bool:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as client:
        client.sendall(encode_request(request, 3, 7, "test"))
        frame = read_frame(client)
    if frame is None:
        return False
    correlation_id, position = read_response_header(memoryview(frame), ApiVersionsResponse, 3)
    answer = decode(ApiVersionsResponse, 3, frame[position:])
    announced = {one.api_key for one in answer.api_keys}
    # Without a subscription to clients' metrics their two APIs are not announced.
    return correlation_id == 7 and announced == {api.key for api in APIS} - {71, 72}


def test_random_frames_close_one_connection_and_no_other(broker: OdradekProcess) -> None:
    source = random.Random(11)
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as bystander:
        for _ in range(FRAMES):
            body = source.randbytes(source.randrange(200))
            _ask(broker, _frame(body))
        bystander.sendall(encode_request(ApiVersionsRequest(), 0, 1, None))
        assert read_frame(bystander) is not None
    assert _serves(broker)


@pytest.mark.slow
def test_every_api_survives_a_truncated_and_a_garbled_body(broker: OdradekProcess) -> None:
    source = random.Random(12)
    for api in APIS:
        for version in range(api.first, api.last + 1):
            head = struct.pack(">hhih", api.key, version, 5, -1)
            for size in (0, 1, 7, 60):
                _ask(broker, _frame(head + source.randbytes(size)))
    assert _serves(broker)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 200 * 1024 * 1024])
def test_an_impossible_size_closes_the_connection_with_one_line(
    broker: OdradekProcess, size: int
) -> None:
    before = broker.log_text().count(f"a frame of {size} bytes")
    assert _ask(broker, struct.pack(">i", size) + b"xxxx") is None
    assert broker.log_text().count(f"a frame of {size} bytes") == before + 1
    assert _serves(broker)


def test_a_frame_that_never_ends_costs_no_memory_up_front(broker: OdradekProcess) -> None:
    from bench.processes import resident_bytes

    assert broker.process is not None
    assert _serves(broker)
    before = resident_bytes(broker.process)
    claimed = 100 * 1024 * 1024
    clients = []
    for _ in range(10):
        client = socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S)
        client.sendall(struct.pack(">i", claimed) + b"x" * 100)
        clients.append(client)
    assert _serves(broker)
    assert resident_bytes(broker.process) - before < claimed // 2
    for client in clients:
        client.close()


@pytest.mark.parametrize(("key", "version"), [(-1, 0), (4, 0), (999, 0), (0, 99), (1, 0), (3, -1)])
def test_an_unknown_api_or_version_closes_the_connection(
    broker: OdradekProcess, key: int, version: int
) -> None:
    assert _ask(broker, _frame(struct.pack(">hhih", key, version, 1, -1))) is None
    assert _serves(broker)


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_api_versions_of_an_unknown_version_says_which_ones_work(
    broker: OdradekProcess, version: int
) -> None:
    frame = _ask(broker, _frame(struct.pack(">hhih", 18, version, 9, -1)))
    assert frame is not None
    answer = decode(ApiVersionsResponse, 0, frame[4:])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    (row,) = answer.api_keys
    assert (row.api_key, row.min_version, row.max_version) == (18, 0, 4)


def test_a_request_in_single_bytes_is_answered(broker: OdradekProcess) -> None:
    request = encode_request(ApiVersionsRequest(), 0, 3, "slow")
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request:
            client.sendall(bytes([byte]))
        assert read_frame(client) is not None


def test_pipelined_requests_are_answered_in_order(broker: OdradekProcess) -> None:
    count = 500
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as client:
        client.sendall(
            b"".join(encode_request(ApiVersionsRequest(), 0, n, "many") for n in range(count))
        )
        for expected in range(count):
            frame = read_frame(client)
            assert frame is not None
            assert struct.unpack(">i", frame[:4]) == (expected,)


def test_bytes_after_a_request_are_passed_over(broker: OdradekProcess) -> None:
    # librdkafka's list_topics() sends three.
    request = encode_request(ApiVersionsRequest(), 0, 3, "more")
    frame = _ask(broker, _frame(request[4:] + b"\x00\x00\x00"))
    assert frame is not None
