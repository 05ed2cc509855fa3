"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from broker.authorized_operations import ALL_OF_GROUP
from broker.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse


def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each group, with what a client may do to it where that is asked for.

    One that is named twice is answered once, unlike in Kafka: its members may be many.
    """
    described = [
        context.broker.groups.describe(group_id, api_version=context.api_version)
        for group_id in dict.fromkeys(request.groups)
    ]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_OF_GROUP
    return DescribeGroupsResponse(groups=described)
