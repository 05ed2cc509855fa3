"""DeleteTopics (20): delete topics and their records, by name or by id.

The checks and their order are those of Kafka's ControllerApis.deleteTopics.

Versions 1 to 6. v3: TOPIC_DELETION_DISABLED. v4: flexible. v5: error messages;
THROTTLING_QUOTA_EXCEEDED (KIP-599). v6: topics by id (KIP-516).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set

from odradek.broker.answers.quota_spending import spending
from odradek.broker.context import RequestContext
from odradek.broker.errors import Explained, Refusal, code_of, message_of
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.pacing import paced
from odradek.protocol.wire import ZERO_UUID

_TOPICS_SINCE = 6
_DISABLED_SINCE = 3
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
# From this version on a client understands that it must retry later (KIP-599).
_STRICT_SINCE = 5


async def handle(
    services: Services, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete each topic where possible."""
    asked = request.topics
    if context.api_version < _TOPICS_SINCE:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    if not services.config.delete_topic_enable:
        return DeleteTopicsResponse(responses=_disabled(asked, context.api_version))
    doomed, results = _sort_out(services, context, asked)
    outcomes = await services.topics.delete(
        list(doomed), spend=spending(context, _STRICT_SINCE)
    )
    results += [
        _result(doomed[topic_id], topic_id, outcome)
        for topic_id, outcome in zip(doomed, outcomes, strict=True)
    ]
    return DeleteTopicsResponse(responses=results)


def _sort_out(
    services: Services, context: RequestContext, asked: Sequence[DeleteTopicState]
) -> tuple[dict[bytes, str], list[DeletableTopicResult]]:
    """Return the topics to delete, from id to name, and the refusals of the others."""
    results = []
    names: Counter[str] = Counter()
    ids: Counter[bytes] = Counter()
    for one in paced(asked):
        if one.name is not None and one.topic_id != ZERO_UUID:
            message = "You may not specify both topic name and topic id."
            results.append(_refused(one.name, one.topic_id, message))
        elif one.name is not None:
            names[one.name] += 1
        elif one.topic_id != ZERO_UUID:
            ids[one.topic_id] += 1
        else:
            message = "Neither topic name nor id were specified."
            results.append(_refused(None, ZERO_UUID, message))
    describable, deletable = _permitted(services, context, names, ids)
    doomed: dict[bytes, str] = {}
    for topic_id, count in paced(ids.items()):
        topic = services.topics.by_id(topic_id)
        if count > 1:
            results.append(_refused(None, topic_id, "Duplicate topic id."))
        elif topic is None:
            unknown = Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
            results.append(_result(None, topic_id, unknown))
        elif topic.name not in deletable:
            shown_name = topic.name if topic.name in describable else None
            results.append(_result(shown_name, topic_id, Refusal(_DENIED)))
        else:
            doomed[topic_id] = topic.name
    for name, count in paced(names.items()):
        topic = services.topics.get(name)
        if count > 1:
            results.append(_refused(name, ZERO_UUID, "Duplicate topic name."))
        elif name not in describable:
            results.append(_result(name, ZERO_UUID, Refusal(_DENIED)))
        elif topic is None:
            unknown = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            results.append(_result(name, ZERO_UUID, unknown))
        elif name not in deletable:
            results.append(_result(name, ZERO_UUID, Refusal(_DENIED)))
        elif topic.topic_id in ids:
            doomed.pop(topic.topic_id, None)
            message = "The provided topic name maps to an ID that was already supplied."
            results.append(_refused(name, topic.topic_id, message))
        else:
            doomed[topic.topic_id] = name
    return doomed, results


def _permitted(
    services: Services, context: RequestContext, names: Counter[str], ids: Counter[bytes]
) -> tuple[Set[str], Set[str]]:
    """Return the topics named once that the client may describe, and those that it may delete."""
    found = (services.topics.by_id(one) for one, count in ids.items() if count == 1)
    asked = {topic.name for topic in found if topic is not None}
    asked |= {name for name, count in names.items() if count == 1}
    if context.may_to_cluster(AclOperation.DELETE, logs_denied=False):
        return asked, asked
    return (
        context.permitted(AclOperation.DESCRIBE, ResourceKind.TOPIC, asked),
        context.permitted(AclOperation.DELETE, ResourceKind.TOPIC, asked),
    )


def _disabled(asked: Sequence[DeleteTopicState], version: int) -> list[DeletableTopicResult]:
    code = ErrorCode.TOPIC_DELETION_DISABLED
    if version < _DISABLED_SINCE:
        code = ErrorCode.INVALID_REQUEST
    return [_result(one.name, one.topic_id, Refusal(code)) for one in asked]


def _refused(name: str | None, topic_id: bytes, message: str) -> DeletableTopicResult:
    return _result(name, topic_id, Refusal(ErrorCode.INVALID_REQUEST, message))


def _result(name: str | None, topic_id: bytes, outcome: Explained | None) -> DeletableTopicResult:
    if outcome is None:
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=0)
    return DeletableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=code_of(outcome),
        error_message=message_of(outcome),
    )
