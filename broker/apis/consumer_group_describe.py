"""ConsumerGroupDescribe: state and members of consumer groups."""

from __future__ import annotations

from broker.authorized_operations import ALL_OF_GROUP
from broker.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group, with what a client may do to it where that is asked for.

    One that is named twice is answered once, unlike in Kafka: its members may be many.
    """
    described = [
        context.broker.groups.describe_consumers(group_id)
        for group_id in dict.fromkeys(request.group_ids)
    ]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_OF_GROUP
    return ConsumerGroupDescribeResponse(groups=described)
