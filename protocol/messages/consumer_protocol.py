"""The data that consumers exchange through a classic group (the protocol type "consumer").

The broker forwards both messages as opaque bytes, except where it must know which topics a group
reads. Each begins with an int16 version. A newer version than the known ones only adds fields at
the end, so it is decoded as the newest known one, and later bytes are ignored
(`compiler.decode_prefix`).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int32, octets, string


@struct
class TopicPartition:
    """Partitions of one topic."""

    topic: string
    partitions: list[int32]


@message(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    """The topics that a member wants to read, and the partitions it has been reading.

    Version notes: 1 adds the owned partitions (KIP-429); 2 the generation they belong to
    (KIP-792); 3 the rack (KIP-881).
    """

    topics: list[string]
    user_data: octets | None = field(default=None)
    owned_partitions: list[TopicPartition] = field("1+")
    generation_id: int32 = field("2+", default=-1)
    rack_id: string | None = field("3+", default=None)


@message(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    """The partitions of a member; the versions differ in the subscription only."""

    assigned_partitions: list[TopicPartition]
    user_data: octets | None = field(default=None)
