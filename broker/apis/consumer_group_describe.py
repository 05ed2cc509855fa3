"""ConsumerGroupDescribe: state and members of consumer groups."""

from __future__ import annotations

from broker.authorized_operations import ALL_OF_GROUP
from broker.context import RequestContext
from broker.repeats import answer_each
from protocol.compiler import encode
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group, with what a client may do to it where that is asked for."""

    def describe(group_id: str) -> DescribedGroup:
        group = context.broker.groups.describe_consumers(group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = ALL_OF_GROUP
        return group

    return ConsumerGroupDescribeResponse(
        groups=answer_each(
            request.group_ids,
            name=lambda group_id: group_id,
            answer=describe,
            size_bytes=lambda group: len(
                encode(ConsumerGroupDescribeResponse(groups=[group]), context.api_version)
            ),
        )
    )
