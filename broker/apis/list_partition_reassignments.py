"""ListPartitionReassignments (46): which partitions move to other brokers (KIP-455).

There is one broker, so none ever is.
"""

from __future__ import annotations

from broker.context import RequestContext
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Answer that there are none."""
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=0, error_message=None, topics=[]
    )
