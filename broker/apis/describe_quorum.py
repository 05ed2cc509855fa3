"""DescribeQuorum (55): the voters of the metadata. Here one broker is the only voter.

Kafka's metadata is a log, partition 0 of __cluster_metadata, whose voters are the controllers.
Here it is a database in which every change has a number: that stands for the end of the log.
The broker answers as a node that is broker and controller at once, has led from the start and
waits for no other voter. Of several brokers that share a catalog, each may change it: all of them
name the one with the lowest id as the leader, and the others as observers, which follow within
100 ms. When they did last is not known here.

Versions 0 to 2. All are flexible. v1: the times of each replica's last fetch and last state
without lag (KIP-836). v2: error messages, directory ids, addresses of controllers (KIP-853).
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.broker.topics import names as topic_names
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    RequestedTopicData,
    TopicData,
)
from odradek.protocol.pacing import paced

# Kafka's epoch counts elections, and there was one.
_LEADER_EPOCH = 1
_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def handle(
    services: Services, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Describe the quorum, or answer that other partitions have none."""
    if not context.may_to_cluster(AclOperation.DESCRIBE):
        return DescribeQuorumResponse(
            error_code=_DENIED, error_message=_DENIED.sentence, topics=[]
        )
    if not _asks_for_metadata(request.topics):
        return DescribeQuorumResponse(topics=[_unknown(topic) for topic in paced(request.topics)])
    now_ms, revision = services.clock.now_ms(), services.store.revision
    leader, *followers = services.brokers
    address = services.brokers.address(leader.node_id, context.listener)
    name = context.listener.name
    state = PartitionData(
        leader_id=leader.node_id,
        leader_epoch=_LEADER_EPOCH,
        high_watermark=revision,
        error_message="",
        current_voters=[
            ReplicaState(
                replica_id=leader.node_id,
                log_end_offset=revision,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
        observers=[
            ReplicaState(replica_id=one.node_id, log_end_offset=revision) for one in followers
        ],
    )
    return DescribeQuorumResponse(
        error_message="",
        topics=[TopicData(topic_name=topic_names.CLUSTER_METADATA, partitions=[state])],
        nodes=[
            Node(
                node_id=leader.node_id,
                listeners=[Listener(name=name, host=address.host, port=address.port)]
                if address is not None
                else [],
            )
        ],
    )


def _asks_for_metadata(topics: list[RequestedTopicData]) -> bool:
    return (
        len(topics) == 1
        and topics[0].topic_name == topic_names.CLUSTER_METADATA
        and [one.partition_index for one in topics[0].partitions] == [0]
    )


def _unknown(topic: RequestedTopicData) -> TopicData:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicData(
        topic_name=topic.topic_name,
        partitions=[
            PartitionData(
                partition_index=one.partition_index,
                error_code=error,
                error_message=error.sentence,
            )
            for one in paced(topic.partitions)
        ],
    )
