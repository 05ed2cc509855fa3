"""ShareGroupDescribe (77): state and members of share groups."""

from __future__ import annotations

from broker.authorized_operations import ALL_OF_GROUP
from broker.context import RequestContext
from broker.repeats import answer_each
from protocol.compiler import encode
from protocol.errors import ErrorCode
from protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def handle(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describe each group, with what a client may do to it where that is asked for."""

    def describe(group_id: str) -> DescribedGroup:
        group = context.broker.share_groups.describe(group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = ALL_OF_GROUP
        return group

    return ShareGroupDescribeResponse(
        groups=answer_each(
            request.group_ids,
            name=lambda group_id: group_id,
            answer=describe,
            size_bytes=lambda group: len(
                encode(ShareGroupDescribeResponse(groups=[group]), context.api_version)
            ),
        )
    )
