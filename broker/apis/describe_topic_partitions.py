"""DescribeTopicPartitions (75): the partitions of topics, up to a limit at a time (KIP-966).

Topics come in the order of their names, and a cursor says where the next request continues. The
topic or partition at the cursor need not exist: then the answer begins with the one that follows.

Version 0 only.
"""

from __future__ import annotations

from odradek.broker.answers.brokers import Placements, placements
from odradek.broker.context import RequestContext
from odradek.broker.orders.java import hash_order
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.states import Partition
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from odradek.protocol.pacing import paced, paced_sorted
from odradek.protocol.wire import ZERO_UUID


def handle(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe the requested topics, or all, from the cursor on and up to the limit."""
    cursor = request.cursor
    from_name = _order(cursor.topic_name) if cursor else b""
    asked = dict.fromkeys(topic.name for topic in paced(request.topics))
    names = asked.keys() or {topic.name for topic in services.topics}
    wanted = paced_sorted((one for one in paced(names) if _order(one) >= from_name), _order)
    if cursor and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return _refuse(request, ErrorCode.INVALID_REQUEST)
    if "" in wanted:  # no client can be permitted to see this name
        return _refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    permitted = context.permitted(AclOperation.DESCRIBE, ResourceKind.TOPIC, wanted)
    hidden = [one for one in paced(asked) if _order(one) >= from_name and one not in permitted]
    # Kafka iterates over a set of the names, and puts its answers into another set.
    hidden = hash_order(hash_order(hidden, len(wanted), pace=paced), pace=paced)
    wanted = [name for name in paced(wanted) if name in permitted]
    limit = services.config.max_request_partition_size_limit
    places = placements(services)
    room = max(min(request.response_partition_limit, limit), 1)
    response = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[])
    for name in paced(wanted):
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = services.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        partitions = topic.partitions[first : first + room]
        response.topics.append(_describe(topic, partitions, places))
        end = first + len(partitions)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        room -= len(partitions)
    for described in paced(response.topics):
        described.topic_authorized_operations = context.authorized_operations(
            ResourceKind.TOPIC, described.name or ""
        )
    response.topics += [_hidden(name) for name in paced(hidden)]
    return response


def _order(name: str) -> bytes:
    """Return the sort key of a name: Java compares strings by their UTF-16 units."""
    return name.encode("utf-16-be")


def _describe(
    topic: Topic, partitions: tuple[Partition, ...], places: Placements
) -> DescribeTopicPartitionsResponseTopic:
    placed_at = places.of
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=0,  # as in Kafka, even without a leader
                partition_index=one.partition,
                leader_id=(placed := placed_at(one)).leader_id,
                leader_epoch=one.leader_epoch,
                replica_nodes=placed.replicas,
                isr_nodes=placed.in_sync,
                eligible_leader_replicas=placed.eligible,
                last_known_elr=placed.eligible,
                offline_replicas=placed.offline,
            )
            for one in paced(partitions)
        ],
    )


def _hidden(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Hide a topic that the client may not describe, whether it exists or not."""
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        topic_id=ZERO_UUID,
        partitions=[],
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    is_legal = topic_names.problem(name) is None
    return DescribeTopicPartitionsResponseTopic(
        error_code=(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        ),
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in topic_names.INTERNAL,
        partitions=[],
    )


def _refuse(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Refuse the whole request. The response can only report that for each topic it names."""
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0,
        topics=[
            DescribeTopicPartitionsResponseTopic(
                error_code=code, name=one.name, topic_id=ZERO_UUID, partitions=[]
            )
            for one in paced(request.topics)
        ],
    )
