"""ListConfigResources (74): the resources that have settings.

Topics and the broker are listed whether they have settings of their own or not. Version 0 knows
client metrics subscriptions only.

Versions 0 to 1. Both are flexible. v1: resources of all types (KIP-1142).
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.context import RequestContext
from odradek.broker.metadata.store import ResourceType
from odradek.broker.orders.hash_map import concurrent_order
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from odradek.protocol.pacing import paced

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def handle(
    services: Services, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources of the requested types, or of all types."""
    if not context.may_to_cluster(AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=_DENIED)
    kinds = set(paced(request.resource_types or ResourceType))
    if context.api_version == 0:
        kinds = {ResourceType.CLIENT_METRICS}
    if not kinds <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in map(ResourceType, sorted(kinds, reverse=True))  # as Kafka
            for name in paced(_names(services, kind))
        ]
    )


def _names(services: Services, kind: ResourceType) -> Iterable[str]:
    if kind is ResourceType.TOPIC:
        return services.topics.order.image()
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(services.configs.node_id)]
    return concurrent_order(list(services.configs.resources.of_type(kind)), paced)
