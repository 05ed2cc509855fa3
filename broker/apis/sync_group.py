"""SyncGroup (14): return a member's assignment; the leader sends all of them (groups/syncing.py).

Versions 0 to 5. v1: the throttle time. v3: static members (KIP-345). v4: flexible. v5: the
protocol and its type, which must be those of the group (KIP-559).
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.broker.context import RequestContext
from odradek.broker.groups import responses
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_VERSION = 5


def handle(
    services: Services, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Answer when the leader's assignment has been stored."""
    names_both = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= _PROTOCOL_VERSION and not names_both:
        return responses.sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.may(AclOperation.READ, ResourceKind.GROUP, request.group_id):
        return responses.sync_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return services.groups.sync(request, context)
