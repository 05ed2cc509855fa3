"""Subscriptions and assignments of classic members, which a consumer group reads and writes.

Each begins with an int16 version (protocol/messages/consumer_protocol.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct

from odradek.broker.groups.consumer.reconcile import Owned
from odradek.broker.groups.modern.topics import TopicView
from odradek.protocol.compiler import decode_prefix, encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.footprint import memory_max
from odradek.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

_INT16 = Struct(">h")
_NEWEST = 3


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Read a subscription; raises ProtocolError for invalid bytes."""
    view = memoryview(data)
    version = min(version_of(data), _NEWEST)
    return decode_prefix(
        ConsumerProtocolSubscription, version, view, _INT16.size, memory_max(len(view))
    )[0]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Read an assignment, empty for no bytes; raises ProtocolError for invalid bytes."""
    if not data:
        return ConsumerProtocolAssignment(assigned_partitions=[])
    view = memoryview(data)
    version = min(version_of(data), _NEWEST)
    return decode_prefix(
        ConsumerProtocolAssignment, version, view, _INT16.size, memory_max(len(view))
    )[0]


def write_assignment(
    topics: TopicView, partitions: Mapping[bytes, Sequence[int]], version: int
) -> bytes:
    """Write an assignment in the version of its member's subscription."""
    named = ((topics.name_of(topic_id), some) for topic_id, some in partitions.items())
    assigned = [
        TopicPartition(topic=name, partitions=list(some))
        for name, some in named
        if name is not None
    ]
    version = min(version, _NEWEST)
    value = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return _INT16.pack(version) + encode(value, version)


def version_of(data: bytes) -> int:
    """Return the version at the beginning of bytes; raises ProtocolError without a valid one."""
    if len(data) < _INT16.size:
        raise ProtocolError("neither subscription nor assignment: there is no version")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"version {version} of the embedded consumer protocol")
    return version


def by_id(topics: TopicView, partitions: Sequence[TopicPartition]) -> Owned:
    """Return partitions by the ids of their topics, without deleted topics."""
    found = ((topics.id_of(one.topic), one.partitions) for one in partitions)
    return {topic_id: set(some) for topic_id, some in found if topic_id is not None}
