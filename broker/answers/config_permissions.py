"""The permission to see and change the settings of a resource, by the type of the resource.

For topics and groups it is a permission on their name; for the broker, its loggers and client
metrics subscriptions on the cluster (ConfigHelper, ControllerApis.authorizeAlterResource).
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.context import RequestContext
from odradek.broker.metadata.store import ResourceType
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.protocol.errors import ErrorCode

_NAMED: Mapping[int, tuple[ResourceKind, ErrorCode]] = {
    ResourceType.TOPIC: (ResourceKind.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ResourceType.GROUP: (ResourceKind.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
}


def config_refusal(
    context: RequestContext, operation: AclOperation, resource_type: int, name: str
) -> ErrorCode | None:
    """Return the error code if a client may not do that to a resource's settings, else None."""
    named = _NAMED.get(resource_type)
    if named is not None:
        kind, error = named
        return None if context.may(operation, kind, name) else error
    if context.may_to_cluster(operation):
        return None
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
