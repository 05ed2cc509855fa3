"""ListPartitionReassignments (46): the partitions that move to other brokers (KIP-455).

There is one broker, so there are none.

Version 0 only.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def handle(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Answer that there are none."""
    if not context.may_to_cluster(AclOperation.DESCRIBE):
        return ListPartitionReassignmentsResponse(
            error_code=_DENIED, error_message=_DENIED.sentence, topics=[]
        )
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=0, error_message=None, topics=[]
    )
