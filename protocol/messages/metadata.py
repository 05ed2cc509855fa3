"""Metadata (3): the brokers of the cluster, and the leaders and replicas of topics.

Version notes: 0 asks for all topics by an empty array, 1 and later by null (empty asks for
none); 4 lets the client forbid auto-creation; 5 adds offline replicas; 7 the leader epoch; 8
authorized operations; 9 is flexible; 10 adds topic ids, which a request may use from 12 on
(KIP-516); 11 drops the cluster's authorized operations (KIP-700); 13 adds a top-level error.
"""

from __future__ import annotations

from odradek.protocol.messages import AUTHORIZED_OPERATIONS_OMITTED
from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, string, uuid


@struct
class MetadataRequestTopic:
    """A topic, by id or by name."""

    topic_id: uuid = field("10+")
    name: string | None = field(nullable="10+")


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """Asks for some topics, or for all."""

    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: boolean = field("4+", default=True)
    include_cluster_authorized_operations: boolean = field("8-10")
    include_topic_authorized_operations: boolean = field("8+")


@struct
class MetadataResponseBroker:
    """A broker, and its address on the listener that got the request."""

    node_id: int32
    host: string
    port: int32
    rack: string | None = field("1+", default=None)


@struct
class MetadataResponsePartition:
    """A partition's leader and replicas."""

    error_code: int16 = field()
    partition_index: int32
    leader_id: int32
    leader_epoch: int32 = field("7+", default=-1)
    replica_nodes: list[int32]
    isr_nodes: list[int32]
    offline_replicas: list[int32] = field("5+")


@struct
class MetadataResponseTopic:
    """A topic and its partitions, or the reason why it is not described."""

    error_code: int16 = field()
    name: string | None = field(nullable="12+")
    topic_id: uuid = field("10+")
    is_internal: boolean = field("1+")
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: int32 = field("8+", default=AUTHORIZED_OPERATIONS_OMITTED)


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """The cluster as this broker knows it."""

    throttle_time_ms: int32 = field("3+")
    brokers: list[MetadataResponseBroker]
    cluster_id: string | None = field("2+", default=None)
    controller_id: int32 = field("1+", default=-1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int32 = field("8-10", default=AUTHORIZED_OPERATIONS_OMITTED)
    error_code: int16 = field("13+")
