"""UnregisterBroker (64): forget a broker that is not coming back (KIP-631).

Version 0 only.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.errors import Refusal
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def handle(
    services: Services, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Refuse: there is one broker, and it is here."""
    if not context.may_to_cluster(AclOperation.ALTER):
        return UnregisterBrokerResponse(error_code=_DENIED, error_message=_DENIED.sentence)
    refused = _refusal(request.broker_id, services.config.node_id)
    return UnregisterBrokerResponse(
        throttle_time_ms=0, error_code=refused.code, error_message=str(refused)
    )


def _refusal(broker_id: int, node_id: int) -> Refusal:
    if broker_id != node_id:
        message = f"Broker ID {broker_id} is not currently registered"
        return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
    # Kafka forgets the broker, and no partition has a leader until the broker starts again.
    message = f"Broker {broker_id} is the only one, and serves this request: stop it instead."
    return Refusal(ErrorCode.INVALID_REQUEST, message)
