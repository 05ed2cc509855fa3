"""ShareGroupDescribe (77): state and members of share groups."""

from __future__ import annotations

from broker.authorized_operations import ALL_OF_GROUP
from broker.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def handle(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describe each group, with what a client may do to it where that is asked for.

    One that is named twice is answered once, unlike in Kafka: its members may be many.
    """
    described = [
        context.broker.share_groups.describe(group_id)
        for group_id in dict.fromkeys(request.group_ids)
    ]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_OF_GROUP
    return ShareGroupDescribeResponse(groups=described)
