"""Metadata (3): the brokers of the cluster, and the leaders and replicas of topics.

Behaviour of KafkaApis.handleTopicMetadataRequest, but for one thing: a topic that asking
creates is in the answer at once, where Kafka answers UNKNOWN_TOPIC_OR_PARTITION and lets the
client ask again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Set

from broker import topic_names
from broker.authorized_operations import Operation
from broker.configs import Configs
from broker.context import RequestContext
from broker.errors import code_of
from broker.partitions import OfflinePartition
from broker.security.authorization import ResourceKind
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
from protocol.pacing import paced
from protocol.wire import ZERO_UUID

_IDS_IN_REQUESTS_SINCE = 12
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def handle(
    context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Describe all topics or the ones asked for, creating those if that is wanted."""
    wanted = request.topics
    if wanted is None or (context.api_version == 0 and not wanted):
        node_id = context.broker.config.node_id
        all_names = [one.name for one in context.broker.topics]
        permitted = _describable(context, all_names, logs_denied=False)
        return _answer(
            context,
            request,
            [
                _describe(one, node_id)
                for one in paced(list(context.broker.topics))
                if one.name in permitted
            ],
        )
    if context.api_version < _IDS_IN_REQUESTS_SINCE and any(
        one.name is None or one.topic_id != ZERO_UUID for one in wanted
    ):
        return _refuse(wanted)
    ids = dict.fromkeys(one.topic_id for one in wanted if one.topic_id != ZERO_UUID)
    if ids:  # then names do not count
        return _by_ids(context, request, ids)
    names = list(dict.fromkeys(one.name for one in wanted if one.name is not None))
    permitted = _describable(context, names)
    missing = [
        name for name in names if name in permitted and context.broker.topics.get(name) is None
    ]
    may_create = (
        request.allow_auto_topic_creation and context.broker.config.auto_create_topics_enable
    )
    refused = dict.fromkeys((name for name in names if name not in permitted), _DENIED)
    if missing and may_create:
        return _create_then_answer(context, request, names, missing, refused)
    return _answer(
        context, request, [_by_name(context, name, refused.get(name)) for name in paced(names)]
    )


def _describable(
    context: RequestContext, names: Iterable[str], *, logs_denied: bool = True
) -> Set[str]:
    return context.permitted(
        Operation.DESCRIBE, ResourceKind.TOPIC, names, logs_denied=logs_denied
    )


def _by_ids(
    context: RequestContext, request: MetadataRequest, ids: Iterable[bytes]
) -> MetadataResponse:
    """Describe topics by id; of those that the client may not describe the names stay unsaid."""
    topics = {topic_id: context.broker.topics.by_id(topic_id) for topic_id in ids}
    permitted = _describable(context, (one.name for one in topics.values() if one is not None))
    node_id = context.broker.config.node_id
    told = []
    for topic_id, topic in paced(topics.items()):
        if topic is None:
            told.append(_unnamed(topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
        elif topic.name not in permitted:
            told.append(_unnamed(topic_id, _DENIED))
        else:
            told.append(_describe(topic, node_id))
    return _answer(context, request, told)


async def _create_then_answer(
    context: RequestContext,
    request: MetadataRequest,
    names: list[str],
    missing: list[str],
    refused: dict[str, ErrorCode],
) -> MetadataResponse:
    if not context.may_to_cluster(Operation.CREATE, logs_denied=False):
        creatable = context.permitted(Operation.CREATE, ResourceKind.TOPIC, missing)
        refused |= dict.fromkeys((one for one in missing if one not in creatable), _DENIED)
        missing = [name for name in missing if name in creatable]
    new = [_new_topic(name, context.broker.configs) for name in missing]
    outcomes = await context.broker.topics.create(new, spend=spending(context, 0))
    refused |= {
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
        context, request, [_by_name(context, name, refused.get(name)) for name in paced(names)]
    )


def _new_topic(name: str, configs: Configs) -> NewTopic:
    if name in topic_names.INTERNAL:
        return internal_topic(name, configs.broker, configs.shares)
    return NewTopic(name)


def _unnamed(topic_id: bytes, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id, partitions=[])


def _by_name(
    context: RequestContext, name: str, refused: ErrorCode | None = None
) -> MetadataResponseTopic:
    if refused is _DENIED:  # whether it is there or not
        return MetadataResponseTopic(error_code=_DENIED, name=name, partitions=[])
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
            for one in paced(topic.partitions)
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
        response.cluster_authorized_operations = context.cluster_operations()
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None and topic.error_code != _DENIED:
                topic.topic_authorized_operations = context.authorized_operations(
                    ResourceKind.TOPIC, topic.name
                )
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
