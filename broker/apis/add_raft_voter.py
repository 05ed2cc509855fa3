"""AddRaftVoter (80): add a controller to the quorum (KIP-853).

Versions 0 to 1. Both are flexible. v1: the answer may come before the change is committed.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.errors import Refusal
from odradek.broker.metadata.raft import check_cluster, check_voter, not_supported
from odradek.broker.orders.java import hash_order
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)

_DEFAULT_LISTENER = "CONTROLLER"
_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def handle(
    services: Services, context: RequestContext, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    """Refuse the request, and say why."""
    if not context.may_to_cluster(AclOperation.ALTER):
        return AddRaftVoterResponse(error_code=_DENIED, error_message=_DENIED.sentence)
    try:
        check_cluster(request.cluster_id, services.cluster_id)
        check_voter(request.voter_id, request.voter_directory_id, "Add")
        names = services.config.controller_listener_names or (_DEFAULT_LISTENER,)
        _check_listeners(request.listeners, names[0])
        raise not_supported("adding")
    except Refusal as refused:
        return AddRaftVoterResponse(
            throttle_time_ms=0, error_code=refused.code, error_message=str(refused)
        )


def _check_listeners(listeners: list[Listener], needed: str) -> None:
    # Names of listeners are compared without regard to case.
    addresses = {one.name.upper(): f"{one.host}/<unresolved>:{one.port}" for one in listeners}
    if needed.upper() not in addresses:
        names = hash_order(addresses, capacity=len(listeners))
        endpoints = ", ".join(f"ListenerName({name})={addresses[name]}" for name in names)
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "Add voter request didn't include the endpoint "
            f"(Endpoints(endpoints={{{endpoints}}})) for the default listener "
            f"ListenerName({needed})",
        )
