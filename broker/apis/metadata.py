"""Metadata (3): the brokers of the cluster, and the leaders and replicas of topics.

Behaviour of KafkaApis.handleTopicMetadataRequest, but for one thing: a topic that asking
creates is in the answer at once, where Kafka answers UNKNOWN_TOPIC_OR_PARTITION and lets the
client ask again.
"""

from __future__ import annotations

from collections.abc import Awaitable

from broker import topic_names
from broker.authorized_operations import ALL_OF_CLUSTER, ALL_OF_TOPIC
from broker.configs import Configs
from broker.context import RequestContext
from broker.errors import code_of
from broker.partitions import OfflinePartition
from broker.security.quotas.spending import spending
from broker.topic import Topic
from broker.topic_plans import NewTopic, TopicPlan, internal_topic
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.wire import ZERO_UUID

_IDS_IN_REQUESTS_SINCE = 12


def handle(
    context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Describe all topics or the ones asked for, creating those if that is wanted."""
    context.broker.expect_work()
    wanted = request.topics
    if wanted is None or (context.api_version == 0 and not wanted):
        node_id = context.broker.config.node_id
        return _answer(
            context, request, [_describe(one, node_id) for one in context.broker.topics]
        )
    if context.api_version < _IDS_IN_REQUESTS_SINCE and any(
        one.name is None or one.topic_id != ZERO_UUID for one in wanted
    ):
        return _refuse(wanted)
    ids = dict.fromkeys(one.topic_id for one in wanted if one.topic_id != ZERO_UUID)
    if ids:  # then names do not count
        return _answer(context, request, [_by_id(context, topic_id) for topic_id in ids])
    names = list(dict.fromkeys(one.name for one in wanted if one.name is not None))
    missing = [name for name in names if context.broker.topics.get(name) is None]
    may_create = (
        request.allow_auto_topic_creation and context.broker.config.auto_create_topics_enable
    )
    if missing and may_create:
        return _create_then_answer(context, request, names, missing)
    return _answer(context, request, [_by_name(context, name) for name in names])


async def _create_then_answer(
    context: RequestContext, request: MetadataRequest, names: list[str], missing: list[str]
) -> MetadataResponse:
    new = [_new_topic(name, context.broker.configs) for name in missing]
    outcomes = await context.broker.topics.create(new, spend=spending(context, 0))
    refused = {
        name: code_of(outcome)
        for name, outcome in zip(missing, outcomes, strict=True)
        if not isinstance(outcome, TopicPlan)
    }
    # Who makes too many finds none there yet, and asks again.
    refused = {
        name: code
        for name, code in refused.items()
        if code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED
    }
    # Where creation was refused because somebody else was first, the topic is there all the same.
    return _answer(
        context, request, [_by_name(context, name, refused.get(name)) for name in names]
    )


def _new_topic(name: str, configs: Configs) -> NewTopic:
    if name in topic_names.INTERNAL:
        return internal_topic(name, configs.broker, configs.shares)
    return NewTopic(name)


def _by_id(context: RequestContext, topic_id: bytes) -> MetadataResponseTopic:
    topic = context.broker.topics.by_id(topic_id)
    if topic is None:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=[]
        )
    return _describe(topic, context.broker.config.node_id)


def _by_name(
    context: RequestContext, name: str, refused: ErrorCode | None = None
) -> MetadataResponseTopic:
    topic = context.broker.topics.get(name)
    if topic is not None:
        return _describe(topic, context.broker.config.node_id)
    if refused is None:
        is_legal = topic_names.problem(name) is None
        refused = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    return MetadataResponseTopic(
        error_code=refused,
        name=name,
        is_internal=name in topic_names.INTERNAL,
        partitions=[],
    )


def _describe(topic: Topic, node_id: int) -> MetadataResponseTopic:
    only_replica = [node_id]  # of every partition: the broker is alone
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=0,
                partition_index=one.partition,
                leader_id=node_id,
                leader_epoch=one.leader_epoch,
                replica_nodes=only_replica,
                isr_nodes=only_replica,
                # Its leader all the same, so that clients hear from it what is wrong.
                offline_replicas=only_replica if isinstance(one, OfflinePartition) else [],
            )
            for one in topic.partitions
        ],
    )


def _answer(
    context: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    config = context.broker.config
    host, port = context.advertised()
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=config.node_id, host=host, port=port, rack=config.broker_rack
            )
        ],
        cluster_id=context.broker.cluster_id,
        controller_id=config.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_OF_CLUSTER
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = ALL_OF_TOPIC
    return response


def _refuse(wanted: list[MetadataRequestTopic]) -> MetadataResponse:
    """Refuse ids in a version that has the field but may not use it (MetadataRequest).

    As in Kafka the answer tells nothing besides, not even of brokers.
    """
    topics = [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST,
            name=one.name or "",
            topic_id=one.topic_id,
            partitions=[],
        )
        for one in wanted
    ]
    return MetadataResponse(brokers=[], topics=topics)
