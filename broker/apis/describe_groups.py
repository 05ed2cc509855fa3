"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from broker.authorized_operations import ALL_OF_GROUP
from broker.context import RequestContext
from broker.repeats import answer_each
from protocol.compiler import encode
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each group, with what a client may do to it where that is asked for."""
    version = context.api_version

    def describe(group_id: str) -> DescribedGroup:
        group = context.broker.groups.describe(group_id, api_version=version)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = ALL_OF_GROUP
        return group

    return DescribeGroupsResponse(
        groups=answer_each(
            request.groups,
            name=lambda group_id: group_id,
            answer=describe,
            size_bytes=lambda group: len(encode(DescribeGroupsResponse(groups=[group]), version)),
        )
    )
