"""CreateTopics (19): create topics with their settings, or only validate the request.

Versions 2 to 7. v4: -1 asks for the default number of partitions and replicas (KIP-464). v5:
flexible; the settings in the answer (KIP-525). v6: THROTTLING_QUOTA_EXCEEDED (KIP-599). v7: topic
ids (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set

from odradek.broker.answers.quota_spending import spending
from odradek.broker.context import RequestContext
from odradek.broker.errors import Explained, Refusal, code_of, message_of
from odradek.broker.orders.java import hash_order
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics.plans import NewTopic, TopicPlan, check_request
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.pacing import paced

# From this version on a client understands that it must retry later (KIP-599).
_STRICT_SINCE = 6


async def handle(
    services: Services, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create each topic where possible; refuse a name that comes twice (ControllerApis)."""
    times = Counter(one.name for one in paced(request.topics))
    once = [name for name, count in paced(times.items()) if count == 1]
    permitted: Set[str] = set(paced(once))
    if not context.may_to_cluster(AclOperation.CREATE, logs_denied=False):
        permitted = context.permitted(AclOperation.CREATE, ResourceKind.TOPIC, once)
    described = context.permitted(
        AclOperation.DESCRIBE_CONFIGS, ResourceKind.TOPIC, once, logs_denied=False
    )
    wanted = [_new_topic(one) for one in paced(request.topics) if one.name in permitted]
    try:
        check_request(wanted, services.config.num_partitions)
    except Refusal as refusal:
        return CreateTopicsResponse(
            topics=[_result(one.name, refusal) for one in paced(request.topics)]
        )
    outcomes = await services.topics.create(
        wanted, validate_only=request.validate_only, spend=spending(context, _STRICT_SINCE)
    )
    results = [
        _result(new.name, outcome, shows_settings=new.name in described)
        for new, outcome in paced(zip(wanted, outcomes, strict=True))
    ]
    twice = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    repeated = [name for name, count in paced(times.items()) if count > 1]
    results += [_result(name, twice) for name in paced(hash_order(repeated, pace=paced))]
    denied = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    named = hash_order(once, _most_at_once(request.topics), pace=paced)
    results += [_result(name, denied) for name in paced(named) if name not in permitted]
    return CreateTopicsResponse(topics=results)


def _most_at_once(topics: Sequence[CreatableTopic]) -> int:
    """Return the largest number of names in Kafka's set: a name that comes again is taken out."""
    there: set[str] = set()
    repeated: set[str] = set()
    most = 0
    for one in paced(topics):
        if one.name in there:
            there.remove(one.name)
            repeated.add(one.name)
        elif one.name not in repeated:
            there.add(one.name)
            most = max(most, len(there))
    return most


def _new_topic(asked: CreatableTopic) -> NewTopic:
    return NewTopic(
        asked.name,
        asked.num_partitions,
        asked.replication_factor,
        [(one.partition_index, one.broker_ids) for one in paced(asked.assignments)],
        {one.name: one.value for one in paced(asked.configs) if one.value is not None},
        [one.name for one in paced(asked.configs) if one.value is None],
    )


def _result(
    name: str, outcome: TopicPlan | Explained, *, shows_settings: bool = True
) -> CreatableTopicResult:
    if not isinstance(outcome, TopicPlan):
        return CreatableTopicResult(
            name=name, error_code=code_of(outcome), error_message=message_of(outcome), configs=[]
        )
    if not shows_settings:  # the number of partitions counts as a setting
        return CreatableTopicResult(
            name=name,
            topic_id=outcome.record.topic_id,
            error_code=0,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
    entries = sorted(outcome.resolved.entries.values(), key=lambda entry: entry.name)
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.record.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=outcome.record.partition_count,
        replication_factor=outcome.record.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in entries
        ],
    )
