"""ListGroups (16): the groups that this broker coordinates.

Versions 0 to 5. v1: the throttle time. v3: flexible. v4: states (KIP-518). v5: types (KIP-848).
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.protocol.pacing import paced


def handle(
    services: Services, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """List the groups that pass the request's filters and that the client may describe.

    A client that may describe the cluster may describe all groups.
    """
    error, groups = services.groups.list_groups(request.states_filter, request.types_filter)
    if not context.may_to_cluster(AclOperation.DESCRIBE, logs_denied=False):
        groups = [
            one
            for one in paced(groups)
            if context.may(
                AclOperation.DESCRIBE, ResourceKind.GROUP, one.group_id, logs_denied=False
            )
        ]
    return ListGroupsResponse(error_code=error, groups=groups)
