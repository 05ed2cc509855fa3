"""Requests take no more memory than they are charged for, and what real clients send is served."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from odradek.broker.api_table import APIS
from odradek.broker.topics.plans import PARTITIONS_PER_REQUEST_MAX
from odradek.protocol.compiler import decode, decode_prefix, encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.footprint import ALLOWANCE_BYTES, RATIO_MAX, memory_max
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.schema import info_of
from tests.protocol.dense import arrays, large, tiny, with_items

pytestmark = pytest.mark.slow

ITEMS = 400
# A character may take four bytes where the wire has one.
STRING_BYTES_MAX = 4
# What small things in the interpreter add to a measurement.
NOISE_BYTES = 2_048

REQUESTS = [(message_classes(api.name)[0], api.name) for api in APIS]
VERSIONS = [
    pytest.param(cls, version, id=f"{name}-v{version}")
    for cls, name in REQUESTS
    for version in info_of(cls).versions
]


def taken_bytes(cls: type, version: int, frame: memoryview) -> int:
    """Return the memory that a decoded message takes; that of other threads adds to it."""
    tracemalloc.start()
    kept = decode_prefix(cls, version, frame)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return taken


def is_charged(cls: type, version: int, frame: memoryview) -> bool:
    """Return whether a message is refused where less memory is left than it takes."""
    limit = taken_bytes(cls, version, frame) - NOISE_BYTES
    if limit <= 0:
        return True
    try:
        decode_prefix(cls, version, frame, 0, limit)
    except ProtocolError as error:
        return "tiny items" in str(error)
    return False


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
def test_no_array_takes_more_than_it_is_charged_for(cls: type, version: int) -> None:
    for path, item in product(arrays(cls, version), (tiny, large)):
        message = with_items(cls, version, path, item, ITEMS)
        frame = memoryview(encode(message, version))
        assert decode_prefix(cls, version, frame)[0] == message  # compiles
        # One of some measurements is enough: what is refused at more is refused at less, too.
        assert any(is_charged(cls, version, frame) for _ in range(3))


def test_a_refused_request_was_never_built() -> None:
    topics = 1_000_000
    version = 9
    body = struct.pack(">BBBB", 0xC1, 0x84, 0x3D, 0) + bytes((1, 0)) * topics + bytes(4)
    frame = memoryview(body)
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="tiny items"):
        decode_prefix(MetadataRequest, version, frame, 0, memory_max(len(frame)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < ALLOWANCE_BYTES


def test_strings_of_wide_characters_stay_within_four_times_the_frame() -> None:
    # One character outside the basic plane makes each of a string's take four bytes.
    groups = ["🦔" + "x" * 30_000] * 300
    version = 2
    frame = memoryview(encode(DeleteGroupsRequest(groups_names=groups), version))
    tracemalloc.start()
    kept = decode_prefix(DeleteGroupsRequest, version, frame, 0, memory_max(len(frame)))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept[0].groups_names == groups
    assert taken < (RATIO_MAX + STRING_BYTES_MAX) * len(frame) + ALLOWANCE_BYTES
    assert taken < 1.1 * STRING_BYTES_MAX * len(frame)


@pytest.mark.parametrize(("cls", "version"), [(DeleteGroupsRequest, 2), (MetadataRequest, 12)])
def test_a_string_longer_than_kafka_reads_is_refused(cls: type, version: int) -> None:
    def of(name: str) -> Any:
        if cls is DeleteGroupsRequest:
            return DeleteGroupsRequest(groups_names=[name])
        return MetadataRequest(topics=[MetadataRequestTopic(name=name)])

    longest = of("x" * 32_767)
    assert decode(cls, version, encode(longest, version)) == longest
    with pytest.raises(ProtocolError, match="32768 bytes"):
        decode(cls, version, encode(of("x" * 32_768), version))


def _names(count: int) -> list[str]:
    """Return topics' names as short as so many can be."""
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
    names: list[str] = []
    length = 1
    while len(names) < count:
        letters = product(alphabet, repeat=length)
        names += ["".join(one) for one, _ in zip(letters, range(count - len(names)), strict=False)]
        length += 1
    return names


def _metadata(count: int) -> Any:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in _names(count)])


def _offset_fetch(count: int) -> Any:
    indexes = list(range(count))
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                topics=[OffsetFetchRequestTopics(name="t", partition_indexes=indexes)],
            )
        ],
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=indexes)],
    )


def _offset_fetch_of_topics(count: int) -> Any:
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in _names(count)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])


def _offset_commit(count: int) -> Any:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=2**40, committed_metadata=""
        )
        for index in range(count)
    ]
    return OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]
    )


def _list_offsets(count: int) -> Any:
    partitions = [ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(count)]
    topic = ListOffsetsTopic(name="t", partitions=partitions)
    return ListOffsetsRequest(replica_id=-1, topics=[topic])


def _fetch(count: int) -> Any:
    one = [FetchPartition(partition=0, fetch_offset=2**40, partition_max_bytes=2**20)]
    topics = [FetchTopic(topic=name, partitions=one) for name in _names(count)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics)


def _produce(count: int) -> Any:
    one = [PartitionProduceData(index=0, records=bytes(69))]
    data = [TopicProduceData(name=name, partition_data=one) for name in _names(count)]
    return ProduceRequest(acks=-1, timeout_ms=500, topic_data=data)


def _create_topics(count: int) -> Any:
    """Return the creation of one topic with so many partitions, each assigned to a broker."""
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in range(count)
    ]
    topic = CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=500)


@pytest.mark.parametrize(
    ("make", "count", "versions"),
    [
        (_metadata, 20_000, (8, 9)),
        (_offset_fetch, 100_000, (8,)),
        (_offset_fetch_of_topics, 10_000, (8,)),
        (_create_topics, PARTITIONS_PER_REQUEST_MAX, (4, 7)),
    ],
)
def test_large_requests_that_a_client_may_send_are_decoded(
    make: Callable[[int], Any], count: int, versions: tuple[int, ...]
) -> None:
    message = make(count)
    for version in versions:
        frame = memoryview(encode(message, version))
        _, end = decode_prefix(type(message), version, frame, 0, memory_max(len(frame)))
        assert end == len(frame)


@pytest.mark.parametrize(
    ("make", "versions"),
    [
        (_offset_fetch, (1, 6, 8)),
        (_offset_commit, (2, 8, 9)),
        (_list_offsets, (1, 4, 6)),
        (_fetch, (4, 12)),
        (_produce, (3, 9)),
    ],
)
def test_partitions_need_no_allowance_however_many_they_are(
    make: Callable[[int], Any], versions: tuple[int, ...]
) -> None:
    message = make(2_000)
    for version in versions:
        frame = memoryview(encode(message, version))
        _, end = decode_prefix(type(message), version, frame, 0, RATIO_MAX * len(frame))
        assert end == len(frame)
