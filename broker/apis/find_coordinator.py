"""FindCoordinator (10): the coordinator of a group, a transaction or a share-partition.

It is the broker that leads the partition of the internal topic that the key belongs to.

Versions 0 to 6. v1: the type of the key; error messages. v3: flexible. v4: several keys (KIP-699).
v5: TRANSACTION_ABORTABLE (KIP-890). v6: share groups (KIP-932).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED
from odradek.broker.loop.repeats import answer_each
from odradek.broker.metadata.members import Address
from odradek.broker.orders.java import partition_for
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.topics import names as topic_names
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

logger = logging.getLogger(__name__)

_GROUP = 0
_TRANSACTION = 1
_SHARE = 2
_TOPICS = {
    _GROUP: topic_names.CONSUMER_OFFSETS,
    _TRANSACTION: topic_names.TRANSACTION_STATE,
    _SHARE: topic_names.SHARE_GROUP_STATE,
}
_BATCH_VERSION = 4
_SHARE_VERSION = 6
_NO_NODE_ID = -1
_NO_PORT = -1
# Requests that follow on the connection are answered no later than that.
_LOOK_S, _LOOKS_MAX = 0.05, 10


def handle(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """Name the coordinator of each key.

    A broker that is alone coordinates everything, even before the internal topic exists.
    """
    name = _TOPICS.get(request.key_type)
    if name is None or not services.topics.is_shared:
        return _answer(services, context, request)
    if services.topics.get(name) is None:
        return _create_then_answer(services, context, request, name)
    answer = _answer(services, context, request)
    is_patient = len(request.coordinator_keys) <= 1 and _lacks_one(answer)
    return _wait_then_answer(services, context, request) if is_patient else answer


async def _create_then_answer(
    services: Services, context: RequestContext, request: FindCoordinatorRequest, name: str
) -> FindCoordinatorResponse:
    try:
        await services.topics.internal(name)
    except EXPLAINED as error:
        logger.error("could not create topic=%s: %s", name, error)
    return _answer(services, context, request)


async def _wait_then_answer(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Wait a moment for the next leader of a partition that has none.

    Clients ask again, but librdkafka only twice within a fifth of a second: after the third
    answer without a coordinator, calls of its producers and consumers never return. Requests for
    several keys, which administrators send, are answered at once.
    """
    for _ in range(_LOOKS_MAX):
        await asyncio.sleep(_LOOK_S)
        answer = _answer(services, context, request)
        if not _lacks_one(answer):
            break
    return answer


def _lacks_one(answer: FindCoordinatorResponse) -> bool:
    """Return whether a coordinator is missing for now."""
    codes = (answer.error_code, *(one.error_code for one in answer.coordinators))
    return ErrorCode.COORDINATOR_NOT_AVAILABLE in codes


def _answer(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    version, key_type = context.api_version, request.key_type
    if version >= _BATCH_VERSION:
        found = answer_each(
            request.coordinator_keys,
            name=lambda key: key,
            answer=lambda key: _coordinator(
                services, context, key_type, key, _problem(context, key_type, key)
            ),
            size_bytes=lambda one: len(
                encode(FindCoordinatorResponse(coordinators=[one]), version)
            ),
        )
        return FindCoordinatorResponse(
            error_message=None, node_id=0, host="", port=0, error_code=0, coordinators=found
        )
    error = _problem(context, key_type, request.key)
    found_one = _coordinator(services, context, key_type, request.key, error)
    if found_one.error_code:
        error = error or ErrorCode.COORDINATOR_NOT_AVAILABLE
    return FindCoordinatorResponse(
        error_code=error,
        error_message=found_one.error_message or error.name,
        node_id=found_one.node_id,
        host=found_one.host,
        port=found_one.port,
        coordinators=[],
    )


def _problem(context: RequestContext, key_type: int, key: str) -> ErrorCode:
    if key_type == _GROUP:
        may = context.may(AclOperation.DESCRIBE, ResourceKind.GROUP, key)
        return ErrorCode.NONE if may else ErrorCode.GROUP_AUTHORIZATION_FAILED
    if key_type == _TRANSACTION:
        may = context.may(AclOperation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, key)
        return ErrorCode.NONE if may else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key_type == _SHARE and context.api_version >= _SHARE_VERSION:
        if not context.may_to_cluster(AclOperation.CLUSTER_ACTION):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        try:
            SharePartitionKey.parse(key)
        except ValueError:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE
    return ErrorCode.INVALID_REQUEST


def _sentence(version: int, key_type: int, error: ErrorCode) -> str:
    """Return the sentence of an error; an error of a single key has none, since keys are many."""
    is_of_key = key_type in _TOPICS and error is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return "" if version >= _BATCH_VERSION and is_of_key else error.sentence


def _coordinator(
    services: Services, context: RequestContext, key_type: int, key: str, error: ErrorCode
) -> Coordinator:
    if error is not ErrorCode.NONE:
        return Coordinator(
            key=key,
            node_id=_NO_NODE_ID,
            host="",
            port=_NO_PORT,
            error_code=error,
            error_message=_sentence(context.api_version, key_type, error),
        )
    found = _leader(services, context, key_type, key)
    if found is None:
        missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _coordinator(services, context, key_type, key, missing)
    return Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _leader(
    services: Services, context: RequestContext, key_type: int, key: str
) -> Address | None:
    """Return the address of the broker that leads a key's partition, None when there is none."""
    topic = services.topics.get(_TOPICS[key_type])
    if topic is None:
        is_alone = not services.topics.is_shared
        return services.brokers.address(services.node_id, context.listener) if is_alone else None
    other = topic.other_leader(partition_for(key, len(topic.partitions)))
    leader_id = services.node_id if other is None else other
    return services.brokers.address(leader_id, context.listener)
