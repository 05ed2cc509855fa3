"""StreamsGroupDescribe (89): state, topology and members of streams groups.

Version 0 only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.broker.answers.described_groups import Describing, describe_each
from odradek.broker.context import RequestContext
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
)


def handle(
    services: Services, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Describe each group, with the operations that a client may perform if it asks for them."""
    return describe_each(
        services, context,
        request.group_ids,
        Describing(
            services.streams_groups.describe,
            _refused,
            lambda groups: StreamsGroupDescribeResponse(groups=groups),
            _topics,
        ),
        shows_operations=request.include_authorized_operations,
    )


def _topics(group: DescribedGroup) -> Iterable[str]:
    subtopologies = group.topology.subtopologies if group.topology is not None else None
    return (name for one in subtopologies or () for name in _named(one))


def _named(subtopology: Subtopology) -> Iterator[str]:
    yield from subtopology.source_topics
    yield from subtopology.repartition_sink_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name
    for topic in subtopology.state_changelog_topics:
        yield topic.name


def _refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    message = None
    if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        message = (
            "The described group uses topics that the client is not authorized to describe."
        )
    return DescribedGroup(group_id=group_id, error_code=error, error_message=message)
