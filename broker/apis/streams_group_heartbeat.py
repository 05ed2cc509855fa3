"""StreamsGroupHeartbeat (88): join a streams group, stay in it, get tasks, and leave.

Version 0 only. The internal topics that the group misses are created in the background, if the
client may create them.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.context import RequestContext
from odradek.broker.groups.streams.configured import InternalTopic, StatusCode
from odradek.broker.groups.streams.heartbeats import refuse
from odradek.broker.groups.streams.topology import named_topics
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics.names import INTERNAL, problem
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from odradek.protocol.pacing import paced

_ERRORS_SHOWN = 3


async def handle(
    services: Services, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Answer when the changes that follow from a heartbeat are stored."""
    refusal = _refusal(services, context, request)
    if refusal is not None:
        return refusal
    answer = await services.streams_groups.heartbeat(request, context)
    if answer.missing:
        _create(services, context, request.group_id, answer.missing, answer.response)
    return answer.response


def _refusal(
    services: Services, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse | None:
    if not services.streams_groups.is_enabled:
        return refuse(ErrorCode.UNSUPPORTED_VERSION).response
    if not context.may(AclOperation.READ, ResourceKind.GROUP, request.group_id):
        return refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED).response
    if request.topology is None:
        return None
    names = named_topics(request.topology)
    internal = [name for name in paced(names) if name in INTERNAL]
    if internal:
        return _invalid(
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is "
            "prohibited."
        )
    invalid = [name for name in paced(names) if problem(name)]
    if invalid:
        return _invalid(f"Topic names {','.join(invalid)} are not valid topic names.")
    if len(context.permitted(AclOperation.DESCRIBE, ResourceKind.TOPIC, names)) < len(names):
        return refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED).response
    return None


def _create(
    services: Services,
    context: RequestContext,
    group_id: str,
    missing: Mapping[str, InternalTopic],
    response: StreamsGroupHeartbeatResponse,
) -> None:
    """Begin to create topics; report those that cannot be created to the client."""
    names = list(missing)
    if not context.may_to_cluster(AclOperation.CREATE, logs_denied=False):
        permitted = context.permitted(AclOperation.CREATE, ResourceKind.TOPIC, names)
        denied = [name for name in names if name not in permitted]
        if denied:
            _add_detail(response, f"Unauthorized to CREATE on topics {', '.join(denied)}.")
            return
    creation = services.streams_groups.internal_topics
    retry_ms = 2 * services.streams_groups.config_of(group_id).heartbeat_interval_ms
    creation.begin(missing, retry_ms)
    errors = creation.errors(names)
    if errors:
        _add_detail(response, f"Creation failed: {_some(errors)}.")


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    for one in response.status or ():
        if one.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            one.status_detail += f"; {detail}"


def _some(errors: Mapping[str, str]) -> str:
    shown = [f"{name} ({error})" for name, error in errors.items()]
    more = len(shown) - _ERRORS_SHOWN
    text = ", ".join(shown[:_ERRORS_SHOWN])
    return f"{text} and {more} more" if more > 0 else text


def _invalid(message: str) -> StreamsGroupHeartbeatResponse:
    return refuse(ErrorCode.STREAMS_INVALID_TOPOLOGY, message).response
