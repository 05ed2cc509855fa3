"""RemoveRaftVoter (81): remove a controller from the quorum (KIP-853).

Version 0 only.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.errors import Refusal
from odradek.broker.metadata.raft import check_cluster, check_voter, not_supported
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def handle(
    services: Services, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """Refuse the request, and say why."""
    if not context.may_to_cluster(AclOperation.ALTER):
        return RemoveRaftVoterResponse(error_code=_DENIED, error_message=_DENIED.sentence)
    try:
        check_cluster(request.cluster_id, services.cluster_id)
        check_voter(request.voter_id, request.voter_directory_id, "Remove")
        raise not_supported("removing")
    except Refusal as refused:
        return RemoveRaftVoterResponse(
            throttle_time_ms=0, error_code=refused.code, error_message=str(refused)
        )
