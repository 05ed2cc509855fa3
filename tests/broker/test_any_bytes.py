"""Any bytes, in any chunks: the broker answers or closes, serves the others, and stays small."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.processes import OdradekProcess
from odradek.broker.api_table import APIS, Api
from odradek.protocol.compiler import encode
from odradek.protocol.footprint import ALLOWANCE_BYTES, RATIO_MAX, item_bytes
from odradek.protocol.frames import encode_request
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.schema import info_of
from tests.broker.doors import DOORS, Door
from tests.broker.memory import load_kernels, peak_bytes, reset_peak
from tests.protocol.dense import arrays, large, tiny, with_items
from tests.protocol.strategies import Strategy, examples, messages
from tests.support.forking import ForkedOdradek

TIMEOUT_S = 60
# They may wait: for data, for other members, for the leader's assignment.
PARKED = ("Fetch", "JoinGroup", "SyncGroup")
FRAME_BYTES = 256 * 1024
# Of a frame: for its values, what the handler makes of them, and the response. The most is taken
# by partitions that are not there, of Fetch and DescribeQuorum: up to 57.
MEMORY_RATIO_MAX = 64

pytestmark = pytest.mark.slow



def _marks(api: Api, version: int) -> Sequence[pytest.MarkDecorator]:
    """Leave the versions between the first and the last to the long run."""
    first = info_of(message_classes(api.name)[0]).versions.first
    return () if version in (first, api.last) else (pytest.mark.interop,)


# What comes in by a listener that authenticates is decoded and served by the same code.
SERVED = [
    pytest.param(
        door, api, version, id=f"{door}-{api.name}-v{version}", marks=_marks(api, version)
    )
    for door in DOORS
    for api in APIS
    for version in info_of(message_classes(api.name)[0]).versions
    if door == "open" or version == api.last
]


@pytest.fixture(scope="module", params=["open"])
def door(request: pytest.FixtureRequest) -> Door:
    """A kind of listener."""
    return DOORS[request.param]


@pytest.fixture(scope="module")
def broker(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekProcess]:
    """A broker in which asking for a topic does not create it, as each of thousands would be.

    It has loaded its kernels, which take memory of their own.
    """
    running = ForkedOdradek(
        tmp_path_factory.mktemp("broker"),
        {**door.settings, "auto.create.topics.enable": "false"},
        log_level="DEBUG",
    )
    running.start()
    load_kernels(running, door.client_settings)
    yield running
    running.stop()
    assert "Traceback" not in running.log_text()


def _narrow(name: str) -> Strategy | None:
    if name in ("num_partitions", "count"):
        return st.integers(-2, 2)
    if name in ("max_wait_ms", "timeout_ms"):
        return st.integers(-1, 5)
    if name == "name":  # never one that can be created
        return st.sampled_from(["", "no/topic", "é" * 40])
    return None


@st.composite
def _streams(draw: st.DrawFn, api: Api, version: int) -> bytes:
    """A request's frame, whole or with some of its bytes changed, gone, repeated, or wrong."""
    cls = message_classes(api.name)[0]
    value = draw(messages(cls, version, _narrow))
    frame = bytearray(encode_request(value, version, 7, draw(st.none() | st.text(max_size=3))))
    body = len(frame) - 4
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(8, max(8, len(frame) - 1)))
        kind = draw(st.sampled_from(["change", "cut", "repeat", "insert"]))
        if kind == "change" and at < len(frame):
            frame[at] = draw(st.sampled_from([0, 1, 127, 128, 254, 255]))
        elif kind == "cut":
            del frame[at : at + draw(st.integers(1, 9))]
        elif kind == "repeat":
            frame[at:at] = frame[at : at + 9]
        elif kind == "insert":
            frame[at:at] = draw(st.binary(max_size=9))
    # Mostly the size that it has, so that what is wrong comes to the decoder.
    size = draw(st.sampled_from([len(frame) - 4] * 6 + [body, 0, len(frame), 2**31 - 1, -1]))
    frame[:4] = struct.pack(">i", size)
    return bytes(frame)


def _exchange(
    door: Door,
    broker: OdradekProcess,
    data: bytes,
    cuts: Sequence[int] = (),
    *,
    waits: bool = True,
) -> None:
    """Send bytes in chunks on a new connection; `waits` for the broker to answer and close."""
    with door.connect(broker.port) as peer:
        client = peer.socket
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = 0
        try:
            for end in sorted({min(cut, len(data)) for cut in cuts} | {len(data)}):
                client.sendall(data[start:end])
                start = end
            if waits:
                client.shutdown(socket.SHUT_WR)
                _rest(client)
        except TimeoutError:
            raise
        except OSError:
            pass  # it was closed, with bytes that were not read


def _rest(client: socket.socket) -> bytes:
    """Read until the broker closes."""
    data = b""
    while more := client.recv(1 << 16):
        data += more
    return data


# By its scope: else each test would start a broker of its own.
@pytest.mark.parametrize(("door", "api", "version"), SERVED, indirect=["door"], scope="module")
def test_whatever_comes_is_answered_or_closed(
    door: Door, broker: OdradekProcess, api: Api, version: int
) -> None:
    first = encode_request(ApiVersionsRequest(), 0, 5, None)

    @examples(6)
    @given(_streams(api, version), st.lists(st.integers(0, 200), max_size=5))
    def check(stream: bytes, cuts: list[int]) -> None:
        _exchange(door, broker, first + stream, cuts, waits=api.name not in PARKED)

    check()
    _check_serves(door, broker)


@examples(60)
@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_bytes_without_meaning_are_closed_on(
    door: Door, broker: OdradekProcess, stream: bytes, cuts: list[int]
) -> None:
    _exchange(door, broker, stream, cuts)
    _check_serves(door, broker)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_memory_is_bounded_by_the_frame(door: Door, broker: OdradekProcess, api: Api) -> None:
    for frame in (*_dense_frames(api, api.last), *_absent_partitions(api)):
        before = reset_peak(broker)
        _exchange(door, broker, frame, waits=api.name not in PARKED)
        _check_serves(door, broker)
        grown = peak_bytes(broker) - before
        assert grown < MEMORY_RATIO_MAX * len(frame) + 16 * ALLOWANCE_BYTES


def _dense_frames(api: Api, version: int) -> Iterator[bytes]:
    """Yield a request for each array and kind of item, with as many as are just not refused."""
    cls = message_classes(api.name)[0]
    for path in arrays(cls, version):
        for item in (tiny, large):
            one, two = (
                len(encode(with_items(cls, version, path, item, count), version))
                for count in (100, 200)
            )
            size = (two - one) / 100
            charge = item_bytes(path[-1], version)
            count = FRAME_BYTES / size
            if charge > RATIO_MAX * size:
                count = min(count, 0.9 * ALLOWANCE_BYTES / (charge - RATIO_MAX * size))
            message: Any = with_items(cls, version, path, item, int(count))
            yield encode_request(message, version, 7, None)


def _absent_partitions(api: Api) -> Iterator[bytes]:
    """Yield fetches of partitions that differ: those that are alike count once."""
    for version in (4, api.last) if api.name == "Fetch" else ():
        partitions = [
            FetchPartition(
                partition=number,
                fetch_offset=2**40 + number,
                partition_max_bytes=2**20 + number,
            )
            for number in range(1_000, 1_000 + FRAME_BYTES // 16)
        ]
        for topics in (
            [FetchTopic(topic="absent", topic_id=bytes([1] * 16), partitions=partitions)],
            [
                FetchTopic(topic=f"{at}", topic_id=at.to_bytes(16, "big"), partitions=[one])
                for at, one in enumerate(partitions[:5_000])
            ],
        ):
            request = FetchRequest(topics=topics, max_wait_ms=0, min_bytes=0, max_bytes=1)
            yield encode_request(request, version, 7, None)


def _check_serves(door: Door, broker: OdradekProcess) -> None:
    with door.connect(broker.port) as peer:
        assert peer.ask(ApiVersionsRequest(), 0).error_code == 0
