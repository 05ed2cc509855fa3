"""ListConfigResources (74): the resources that have settings.

Version notes: 0 lists client metrics subscriptions only (KIP-714); 1 lists any type (KIP-1142).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, string

_CLIENT_METRICS = 16


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """Types to list; an empty list means all types."""

    resource_types: list[int8] = field("1+")


@struct
class ConfigResource:
    """A resource."""

    resource_name: string
    resource_type: int8 = field("1+", default=_CLIENT_METRICS)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """The resources."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    config_resources: list[ConfigResource] = field()
