"""UnregisterBroker (64): forget a broker that is not coming back (KIP-631).

Clients see a stopped broker in DescribeCluster until then (KIP-1073).

Version 0 only.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED, code_of, message_of
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def handle(
    services: Services, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Forget a broker that has stopped."""
    if not context.may_to_cluster(AclOperation.ALTER):
        return UnregisterBrokerResponse(error_code=_DENIED, error_message=_DENIED.sentence)
    response = UnregisterBrokerResponse(throttle_time_ms=0, error_code=0, error_message="")
    try:
        await services.registrations.remove(request.broker_id)
    except EXPLAINED as error:
        response.error_code, response.error_message = code_of(error), message_of(error)
    return response
