"""ConsumerGroupDescribe (69): state and members of consumer groups.

Versions 0 to 1. Both are flexible. v1: the protocol of each member (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.answers.described_groups import Describing, describe_each
from odradek.broker.context import RequestContext
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group, with the operations that a client may perform if it asks for them."""
    return describe_each(
        services, context,
        request.group_ids,
        Describing(
            services.groups.describe_consumers,
            _refused,
            lambda groups: ConsumerGroupDescribeResponse(groups=groups),
            _topics,
        ),
        shows_operations=request.include_authorized_operations,
    )


def _topics(group: DescribedGroup) -> Iterable[str]:
    return (
        one.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for one in assignment.topic_partitions
    )


def _refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    message = None
    if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        message = (
            "The group has described topic(s) that the client is not authorized to describe."
        )
    return DescribedGroup(group_id=group_id, error_code=error, error_message=message, members=[])
