"""JoinGroup (11): join a classic group (broker/groups/joining.py).

Versions 0 to 9. v1: the rebalance timeout, until then that of the session. v2: the throttle time.
v4: a new member joins twice, then with the id that it got (KIP-394). v5: static members (KIP-345).
v6: flexible. v7: the type of the protocol in the answer (KIP-559). v8: a reason (KIP-800). v9: a
leader may skip the assignment (KIP-814).
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.broker.context import RequestContext
from odradek.broker.groups import responses
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


def handle(
    services: Services, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Answer when the group's members have joined."""
    if not context.may(AclOperation.READ, ResourceKind.GROUP, request.group_id):
        return responses.join_error(
            ErrorCode.GROUP_AUTHORIZATION_FAILED, api_version=context.api_version
        )
    return services.groups.join(request, context)
