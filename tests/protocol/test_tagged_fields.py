"""Tagged fields that nobody knows are passed over, but not as many as a frame can hold."""

from __future__ import annotations

import struct

import pytest

from odradek.protocol.compiler import decode_prefix, encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.footprint import ALLOWANCE_BYTES, RATIO_MAX, TAG_BYTES, memory_max
from odradek.protocol.frames import read_request_header, skip_header_tags
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.wire import uvarint

EMPTY = uvarint(7) + uvarint(0)
FRAME_BYTES = 512 * 1024


def header_with(count: int, tags: bytes) -> memoryview:
    """Return the header of an ApiVersions request that says how many tags there are."""
    return memoryview(struct.pack(">hhih", 18, 3, 1, -1) + uvarint(count) + tags)


def api_versions_with(count: int, tags: bytes) -> memoryview:
    """Return the body of an ApiVersions request."""
    return memoryview(uvarint(2) + b"a" + uvarint(2) + b"1" + uvarint(count) + tags)


def fetch_with(partitions: int, tags_of_each: list[bytes]) -> memoryview:
    """Return a Fetch request with tags in each partition."""
    body = encode(FetchRequest(max_wait_ms=500, min_bytes=1, topics=[]), 12)
    partition = struct.pack(">iiqiqi", 0, -1, 2**40, -1, -1, 2**20)
    partition += uvarint(len(tags_of_each)) + b"".join(tags_of_each)
    topic = uvarint(2) + b"t" + uvarint(partitions + 1) + partition * partitions + uvarint(0)
    # Before the topics are numbers of fixed size, then their count, which is 0.
    at = struct.calcsize(">iiiibii")
    return memoryview(body[:at] + uvarint(2) + topic + body[at + 1 :])


def test_as_many_tags_in_a_header_as_anybody_sends_are_passed_over() -> None:
    frame = header_with(1_000, EMPTY * 1_000)
    header = read_request_header(frame)
    skip_header_tags(frame, header)
    assert header.body == len(frame)


def test_a_header_full_of_tags_is_refused_before_they_are_read() -> None:
    # None of them is there: who read them would find the frame truncated.
    frame = header_with(1_001, b"")
    with pytest.raises(ProtocolError, match="1001 tagged fields"):
        skip_header_tags(frame, read_request_header(frame))


def test_a_body_full_of_tags_is_refused_before_they_are_read() -> None:
    count = FRAME_BYTES // len(EMPTY)
    frame = api_versions_with(count, b"")
    with pytest.raises(ProtocolError, match="too many tiny items"):
        decode_prefix(ApiVersionsRequest, 3, frame, 0, memory_max(FRAME_BYTES))


def test_some_tags_in_a_body_are_passed_over() -> None:
    count = ALLOWANCE_BYTES // TAG_BYTES
    frame = api_versions_with(count, EMPTY * count)
    request, end = decode_prefix(ApiVersionsRequest, 3, frame, 0, ALLOWANCE_BYTES)
    assert request.client_software_name == "a" and end == len(frame)


@pytest.mark.parametrize("tag", [EMPTY, uvarint(7) + uvarint(4) + b"four"])
def test_a_tag_in_each_partition_needs_no_allowance(tag: bytes) -> None:
    frame = fetch_with(5_000, [tag])
    request, end = decode_prefix(FetchRequest, 12, frame, 0, RATIO_MAX * len(frame))
    assert len(request.topics[0].partitions) == 5_000 and end == len(frame)


def test_tags_are_counted_over_all_that_have_them() -> None:
    frame = fetch_with(500, [EMPTY] * 120)
    with pytest.raises(ProtocolError, match="too many tiny items"):
        decode_prefix(FetchRequest, 12, frame, 0, memory_max(len(frame)))


def test_a_tag_that_is_known_counts_as_often_as_it_is_there() -> None:
    cluster_id = uvarint(0) + uvarint(2) + uvarint(2) + b"c"
    plain = bytes(encode(FetchRequest(max_wait_ms=500, min_bytes=1, topics=[]), 12))[:-1]
    some = memoryview(plain + uvarint(10) + cluster_id * 10)
    request, _ = decode_prefix(FetchRequest, 12, some, 0, memory_max(len(some)))
    assert request.cluster_id == "c"
    many = memoryview(plain + uvarint(100_000) + cluster_id * 100_000)
    with pytest.raises(ProtocolError, match="too many tiny items"):
        decode_prefix(FetchRequest, 12, many, 0, memory_max(len(many)))
