"""Metadata (3): the brokers of the cluster, and the leaders and replicas of topics.

The behaviour is that of KafkaApis.handleTopicMetadataRequest, with one difference: a topic that
the request creates is in the answer at once. Kafka answers UNKNOWN_TOPIC_OR_PARTITION and lets
the client ask again.

Versions 0 to 13. v1: null asks for all topics, in v0 an empty list. v2: the cluster's id. v3: the
throttle time. v4: a client can forbid that topics are created. v5: offline replicas. v7: leader
epochs. v8: authorized operations. v9: flexible. v10: topic ids in the answer. v11: no authorized
operations of the cluster (KIP-700). v12: topic ids in the request (KIP-516). v13: an error for
all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Set

from odradek.broker.answers.brokers import Placements, placements
from odradek.broker.answers.quota_spending import spending
from odradek.broker.context import RequestContext
from odradek.broker.errors import code_of
from odradek.broker.hosts.listener import Listener
from odradek.broker.metadata.configs import Configs
from odradek.broker.orders.java import string_hash, uuid_hash
from odradek.broker.orders.scala import SMALL_MAX, trie_order
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.plans import NewTopic, TopicPlan, internal_topic
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.pacing import paced
from odradek.protocol.wire import ZERO_UUID

_IDS_IN_REQUESTS_SINCE = 12
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def stamp(services: Services, listener: Listener) -> Hashable:
    """Return all but the request that decides an answer, None where clients have rights."""
    if services.security.authorizer is not None:
        return None
    brokers, features = services.brokers.revision, services.features.epoch
    return services.topics.generation, brokers, features, services.config.auto_create_topics_enable


def handle(
    services: Services, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Describe all topics or the requested ones; create missing ones if the client wants that."""
    wanted = request.topics
    if wanted is None or (context.api_version == 0 and not wanted):
        return _answer(services, context, request, _all(services, context))
    if context.api_version < _IDS_IN_REQUESTS_SINCE and any(
        one.name is None or one.topic_id != ZERO_UUID for one in wanted
    ):
        return _refuse(wanted)
    if any(one.topic_id != ZERO_UUID for one in wanted):  # then names do not count
        return _by_ids(services, context, request, dict.fromkeys(one.topic_id for one in wanted))
    names = list(dict.fromkeys(one.name for one in wanted if one.name is not None))
    permitted = _describable(context, names)
    missing = [
        name for name in names if name in permitted and services.topics.get(name) is None
    ]
    may_create = (
        request.allow_auto_topic_creation and services.config.auto_create_topics_enable
    )
    if missing and may_create:
        return _create_then_answer(services, context, request, names, missing, permitted)
    return _answer(services, context, request, _by_name(services, names, permitted, {}))


def _all(services: Services, context: RequestContext) -> list[MetadataResponseTopic]:
    topics = services.topics
    permitted = _describable(context, topics.order.image(), logs_denied=False)
    found = map(topics.get, topics.order.described(permitted))
    places = placements(services)
    return [_describe(one, places) for one in paced(found) if one is not None]


def _describable(
    context: RequestContext, names: Iterable[str], *, logs_denied: bool = True
) -> Set[str]:
    return context.permitted(
        AclOperation.DESCRIBE, ResourceKind.TOPIC, names, logs_denied=logs_denied
    )


def _by_ids(
    services: Services, context: RequestContext, request: MetadataRequest, ids: Collection[bytes]
) -> MetadataResponse:
    """Describe topics by id; leave out the names of topics that the client may not describe.

    As in Kafka the zero id, which topics given by name have, counts as an id.
    """
    is_trie = len(ids) > SMALL_MAX
    asked = [one for one in ids if one != ZERO_UUID]
    if is_trie:
        asked = trie_order(asked, uuid_hash)
    topics = {one: services.topics.by_id(one) for one in paced(asked)}
    unknown = [topic_id for topic_id, topic in topics.items() if topic is None]
    if is_trie:
        unknown = trie_order(unknown, uuid_hash)
    known = {one.name: one for one in topics.values() if one is not None}
    permitted = _describable(context, known)
    places = placements(services)
    order: Callable[[Iterable[str]], list[str]] = _trie if is_trie else list
    return _answer(
        services, context,
        request,
        [
            *(_unnamed(one, ErrorCode.UNKNOWN_TOPIC_ID) for one in paced(unknown)),
            *(
                _describe(known[name], places)
                for name in paced(order(name for name in known if name in permitted))
            ),
            *(
                _unnamed(known[name].topic_id, _DENIED)
                for name in paced(order(name for name in known if name not in permitted))
            ),
        ],
    )


async def _create_then_answer(
    services: Services,
    context: RequestContext,
    request: MetadataRequest,
    names: list[str],
    missing: list[str],
    permitted: Set[str],
) -> MetadataResponse:
    refused: dict[str, ErrorCode] = {}
    if not context.may_to_cluster(AclOperation.CREATE, logs_denied=False):
        creatable = context.permitted(AclOperation.CREATE, ResourceKind.TOPIC, missing)
        refused |= dict.fromkeys((one for one in missing if one not in creatable), _DENIED)
        missing = [name for name in missing if name in creatable]
    new = [_new_topic(name, services.configs) for name in missing]
    outcomes = await services.topics.create(new, spend=spending(context, 0))
    refused |= {
        name: code_of(outcome)
        for name, outcome in zip(missing, outcomes, strict=True)
        if not isinstance(outcome, TopicPlan)
    }
    # A client over its quota of topics is answered that they do not exist yet, and asks again.
    refused = {
        name: code
        for name, code in refused.items()
        if code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED
    }
    # When creation was refused because another client was first, the topic exists all the same.
    return _answer(services, context, request, _by_name(services, names, permitted, refused))


def _new_topic(name: str, configs: Configs) -> NewTopic:
    if name in topic_names.INTERNAL:
        return internal_topic(name, configs.broker, configs.shares)
    return NewTopic(name)


def _unnamed(topic_id: bytes, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id, partitions=[])


def _by_name(
    services: Services, names: list[str], permitted: Set[str], refused: Mapping[str, ErrorCode]
) -> list[MetadataResponseTopic]:
    """Describe topics; missing ones follow, and last those that the client may not describe.

    As in Kafka each of the three is a set of its own, which is a trie when the request names more
    than a few topics.
    """
    topics, places = services.topics, placements(services)
    asked: dict[str, Topic | None] = {}
    not_created: list[str] = []
    denied: list[str] = []
    for name in names:  # without a pause: topics come and go
        if name not in permitted:
            denied.append(name)
        elif refused.get(name) is _DENIED:
            not_created.append(name)
        else:
            asked[name] = topics.get(name)
    is_trie = len(names) > SMALL_MAX
    if is_trie:
        asked = {name: asked[name] for name in _trie(asked)}
    missing = [name for name, topic in asked.items() if topic is None]
    if is_trie:
        missing, not_created, denied = map(_trie, (missing, not_created, denied))
    response = [_describe(topic, places) for topic in paced(asked.values()) if topic is not None]
    for name in paced(missing):
        response.append(_missing(name, refused.get(name)))
    for name in paced([*not_created, *denied]):
        response.append(MetadataResponseTopic(error_code=_DENIED, name=name, partitions=[]))
    return response


def _trie(names: Iterable[str]) -> list[str]:
    return trie_order(names, string_hash)


def _missing(name: str, refused: ErrorCode | None) -> MetadataResponseTopic:
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


def _describe(topic: Topic, places: Placements) -> MetadataResponseTopic:
    placed_at = places.of
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=(placed := placed_at(one)).error,
                partition_index=one.partition,
                leader_id=placed.leader_id,
                leader_epoch=one.leader_epoch,
                replica_nodes=placed.replicas,
                isr_nodes=placed.in_sync,
                offline_replicas=placed.offline,
            )
            for one in paced(topic.partitions)
        ],
    )


def _answer(
    services: Services,
    context: RequestContext,
    request: MetadataRequest,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=one.node_id, host=one.host, port=one.port, rack=one.rack
            )
            for one in services.brokers.addresses(context.listener)
        ],
        cluster_id=services.cluster_id,
        controller_id=services.brokers.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.cluster_operations()
    if request.include_topic_authorized_operations:
        for topic in paced(topics):
            if topic.name is not None and topic.error_code != _DENIED:
                topic.topic_authorized_operations = context.authorized_operations(
                    ResourceKind.TOPIC, topic.name
                )
    return response


def _refuse(wanted: list[MetadataRequestTopic]) -> MetadataResponse:
    """Refuse ids in a version that has the field but may not use it (MetadataRequest).

    As in Kafka the answer has nothing else, not even brokers.
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
