"""DescribeCluster (60): the brokers and the controller. Each broker calls itself that.

Versions 0 to 2. All are flexible. v1: the type of endpoints (KIP-919). v2: fenced brokers
(KIP-1073).
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.metadata.members import Address
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS, _CONTROLLERS = 1, 2


def handle(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the cluster; refuse a client that expects a controller (KIP-919)."""
    if request.endpoint_type == _CONTROLLERS:
        return _refusal(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return _refusal(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
    brokers = [_broker(one) for one in services.brokers.addresses(context.listener)]
    if request.include_fenced_brokers:
        absent = services.brokers.absent_addresses(context.listener)
        brokers += [_broker(one, is_fenced=True) for one in absent]
        brokers.sort(key=lambda one: one.broker_id)
    response = DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        cluster_id=services.cluster_id,
        controller_id=services.brokers.controller_id,
        brokers=brokers,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = context.cluster_operations()
    return response


def _broker(at: Address, *, is_fenced: bool = False) -> DescribeClusterBroker:
    return DescribeClusterBroker(
        broker_id=at.node_id, host=at.host, port=at.port, rack=at.rack, is_fenced=is_fenced
    )


def _refusal(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=code, error_message=message, cluster_id="", brokers=[]
    )
