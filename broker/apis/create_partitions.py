"""CreatePartitions (37): add partitions to topics. Partitions cannot be removed again.

Versions 0 to 3. v2: flexible. v3: THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections import Counter

from odradek.broker.answers.quota_spending import spending
from odradek.broker.context import RequestContext
from odradek.broker.errors import Explained, Refusal, code_of, message_of
from odradek.broker.orders.java import hash_order
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics.plans import Enlargement
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from odradek.protocol.pacing import paced

# From this version on, clients know THROTTLING_QUOTA_EXCEEDED and retry later (KIP-599).
_STRICT_SINCE = 3


async def handle(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Enlarge each topic where possible; refuse a topic that is named twice (ControllerApis)."""
    times = Counter(one.name for one in paced(request.topics))
    twice = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results = [_result(name, twice) for name in hash_order(_named_twice(times), pace=paced)]
    # In the order of Kafka's HashSet: it decides which topics still fit within the limits.
    names = hash_order(times, pace=paced)
    once = [name for name in paced(names) if times[name] == 1]
    permitted = context.permitted(AclOperation.ALTER, ResourceKind.TOPIC, once)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    results += [
        CreatePartitionsTopicResult(name=name, error_code=denied)
        for name in paced(once)
        if name not in permitted
    ]
    by_name = {one.name: one for one in paced(request.topics)}
    wanted = [_enlargement(by_name[name]) for name in paced(once) if name in permitted]
    outcomes = await services.topics.enlarge(
        wanted, validate_only=request.validate_only, spend=spending(context, _STRICT_SINCE)
    )
    results += [
        _result(one.name, outcome)
        for one, outcome in paced(zip(wanted, outcomes, strict=True))
    ]
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def _named_twice(times: Counter[str]) -> list[str]:
    return [name for name, count in paced(times.items()) if count > 1]


def _enlargement(asked: CreatePartitionsTopic) -> Enlargement:
    assignments = asked.assignments
    return Enlargement(
        asked.name,
        asked.count,
        None if assignments is None else [one.broker_ids for one in paced(assignments)],
    )


def _result(name: str, outcome: Explained | None) -> CreatePartitionsTopicResult:
    if outcome is None:
        return CreatePartitionsTopicResult(name=name, error_code=0)
    return CreatePartitionsTopicResult(
        name=name, error_code=code_of(outcome), error_message=message_of(outcome)
    )
