"""ShareGroupDescribe (77): state and members of share groups."""

from __future__ import annotations

from broker.context import RequestContext
from broker.described_groups import describe_each
from protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def handle(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describe each group, with what a client may do to it where that is asked for."""
    return describe_each(
        request.group_ids,
        context.broker.share_groups.describe,
        lambda groups: ShareGroupDescribeResponse(groups=groups),
        tells_operations=request.include_authorized_operations,
        api_version=context.api_version,
    )
