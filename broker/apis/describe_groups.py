"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from broker.context import RequestContext
from broker.described_groups import describe_each
from protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each group, with what a client may do to it where that is asked for."""
    version = context.api_version
    return describe_each(
        request.groups,
        lambda group_id: context.broker.groups.describe(group_id, api_version=version),
        lambda groups: DescribeGroupsResponse(groups=groups),
        tells_operations=request.include_authorized_operations,
        api_version=version,
    )
