"""DescribeGroups (15): state and members of classic groups.

Versions 0 to 6. v1: the throttle time. v3: authorized operations. v4: static members (KIP-345).
v5: flexible. v6: GROUP_ID_NOT_FOUND for a missing group, which was Dead before (KIP-1043).
"""

from __future__ import annotations

from odradek.broker.answers.described_groups import Describing, describe_each
from odradek.broker.context import RequestContext
from odradek.broker.groups.responses import described_error
from odradek.broker.services import Services
from odradek.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(
    services: Services, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe each group, with the operations that a client may perform if it asks for them."""
    version = context.api_version
    return describe_each(
        services, context,
        request.groups,
        Describing(
            lambda group_id: services.groups.describe(group_id, api_version=version),
            described_error,
            lambda groups: DescribeGroupsResponse(groups=groups),
            refuses_empty=False,
        ),
        shows_operations=request.include_authorized_operations,
    )
