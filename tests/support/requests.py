"""Requests as clients send them, with the values that most tests want for the rest.

    peer.ask(creating(creatable("orders", 3), "prices"), 7)
    peer.ask(producing("orders", batch(b"value"), partition=2), 9)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from odradek.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
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
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.wire import ZERO_UUID

Topic = TypeVar("Topic", bound="str | bytes")  # its name, or its id

LATEST = -1
_TIMEOUT_MS = 30_000
_TOPIC, _SET = 2, 0  # of IncrementalAlterConfigs


def creatable(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> CreatableTopic:
    """Ask for a topic as CreateTopics does."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )


def creating(*topics: CreatableTopic | str, validate_only: bool = False) -> CreateTopicsRequest:
    """Create topics; a name alone is that of a topic with one partition."""
    return CreateTopicsRequest(
        topics=[creatable(one) if isinstance(one, str) else one for one in topics],
        timeout_ms=_TIMEOUT_MS,
        validate_only=validate_only,
    )


def altering(
    resource: str, settings: Mapping[str, str], kind: int = _TOPIC, *, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    """Ask to set some of a resource's settings, and to leave the others."""
    entries = [
        AlterableConfig(name=name, config_operation=_SET, value=value)
        for name, value in settings.items()
    ]
    one = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=entries)
    return IncrementalAlterConfigsRequest(resources=[one], validate_only=validate_only)


def describing(*names: str, creates: bool = False) -> MetadataRequest:
    """Ask for the metadata of topics by their names."""
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=creates,
    )


def producing(
    topic: str,
    records: bytes | bytearray | memoryview | Mapping[int, bytes | None],
    *,
    topic_id: bytes = ZERO_UUID,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Append a batch to one partition, or one batch to each of several partitions."""
    batches = records if isinstance(records, Mapping) else {partition: records}
    data = [PartitionProduceData(index=at, records=one) for at, one in batches.items()]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)],
    )


def fetching(
    topic: str,
    offset: int = 0,
    *,
    topic_id: bytes = ZERO_UUID,
    partition: int = 0,
    wait_ms: int = 0,
    min_bytes: int = 1,
    size_max: int = 1 << 20,
    isolation: int = 0,
    rack: str = "",
) -> FetchRequest:
    """Fetch at most so many bytes from one partition."""
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size_max)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        isolation_level=isolation,
        rack_id=rack,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[part])],
    )


def listing_offsets(
    partitions: Mapping[str, Iterable[int]], timestamp: int = LATEST, *, isolation: int = 0
) -> ListOffsetsRequest:
    """Look for the offset of a timestamp in partitions of topics; without one, for the ends."""
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsPartition(partition_index=number, timestamp=timestamp)
                for number in numbers
            ],
        )
        for name, numbers in partitions.items()
    ]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=1_000
    )


def committing(
    group: str,
    offsets: Mapping[Topic, Mapping[int, int]],
    *,
    metadata: str | None = "",
    member_id: str = "",
    generation: int = -1,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    """Commit offsets of partitions, of topics by their names or ids."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic if isinstance(topic, str) else "",
            topic_id=topic if isinstance(topic, bytes) else ZERO_UUID,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=number, committed_offset=offset, committed_metadata=metadata
                )
                for number, offset in by_partition.items()
            ],
        )
        for topic, by_partition in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        retention_time_ms=retention_ms,
        topics=topics,
    )
