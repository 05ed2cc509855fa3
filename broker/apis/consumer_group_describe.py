"""ConsumerGroupDescribe: state and members of consumer groups."""

from __future__ import annotations

from broker.context import RequestContext
from broker.described_groups import describe_each
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)


def handle(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group, with what a client may do to it where that is asked for."""
    return describe_each(
        request.group_ids,
        context.broker.groups.describe_consumers,
        lambda groups: ConsumerGroupDescribeResponse(groups=groups),
        tells_operations=request.include_authorized_operations,
        api_version=context.api_version,
    )
