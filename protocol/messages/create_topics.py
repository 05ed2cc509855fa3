"""CreateTopics (19): create topics, or only check whether they could be.

Version notes: 4 lets -1 stand for the broker's default of partitions and replicas (KIP-464); 5
is flexible and answers with the configuration (KIP-525); 6 may answer
THROTTLING_QUOTA_EXCEEDED (KIP-599); 7 answers with the topic's id (KIP-516).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, string, uuid


@struct
class CreatableReplicaAssignment:
    """The brokers that will hold a partition."""

    partition_index: int32
    broker_ids: list[int32]


@struct
class CreatableTopicConfig:
    """A configuration of the topic's own."""

    name: string
    value: string | None


@struct
class CreatableTopic:
    """A topic; with assignments, num_partitions and replication_factor are -1."""

    name: string
    num_partitions: int32
    replication_factor: int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    """Topics to create."""

    topics: list[CreatableTopic]
    timeout_ms: int32 = field(default=60_000)
    validate_only: boolean = field("1+")


@struct
class CreatableTopicConfigs:
    """A configuration in force for the topic, and where it comes from."""

    name: string = field("5+")
    value: string | None = field("5+")
    read_only: boolean = field("5+")
    config_source: int8 = field("5+", default=-1)
    is_sensitive: boolean = field("5+")


@struct
class CreatableTopicResult:
    """A topic that was created, or the reason why it was not."""

    name: string
    topic_id: uuid = field("7+")
    error_code: int16 = field()
    error_message: string | None = field("1+")
    topic_config_error_code: int16 = field("5+", tag=0)
    num_partitions: int32 = field("5+", default=-1)
    replication_factor: int16 = field("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field("5+")


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """The result for each topic."""

    throttle_time_ms: int32 = field("2+")
    topics: list[CreatableTopicResult]
