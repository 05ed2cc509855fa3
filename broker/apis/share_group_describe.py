"""ShareGroupDescribe (77): state and members of share groups.

Version 1 only.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.answers.described_groups import Describing, describe_each
from odradek.broker.context import RequestContext
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def handle(
    services: Services, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describe each group, with the operations that a client may perform if it asks for them."""
    return describe_each(
        services, context,
        request.group_ids,
        Describing(
            services.share_groups.describe,
            _refused,
            lambda groups: ShareGroupDescribeResponse(groups=groups),
            _topics,
        ),
        shows_operations=request.include_authorized_operations,
    )


def _topics(group: DescribedGroup) -> Iterable[str]:
    return (
        one.topic_name
        for member in group.members
        for one in member.assignment.topic_partitions
    )


def _refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    message = None
    if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        message = (
            "The group has described topic(s) that the client is not authorized to describe."
        )
    return DescribedGroup(group_id=group_id, error_code=error, error_message=message, members=[])
