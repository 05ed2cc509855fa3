"""IncrementalAlterConfigs (44): change single configurations (KIP-339).

Version notes: 1 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, string


@struct
class AlterableConfig:
    """A change: operation 0 sets, 1 deletes, 2 appends to a list, 3 subtracts from one."""

    name: string
    config_operation: int8
    value: string | None


@struct
class AlterConfigsResource:
    """A resource and its changes."""

    resource_type: int8
    resource_name: string
    configs: list[AlterableConfig]


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Resources to change; each is changed completely or not at all."""

    resources: list[AlterConfigsResource]
    validate_only: boolean


@struct
class AlterConfigsResourceResponse:
    """Whether one resource was changed."""

    error_code: int16 = field()
    error_message: string | None
    resource_type: int8
    resource_name: string


@message(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """The result for each resource."""

    throttle_time_ms: int32 = field()
    responses: list[AlterConfigsResourceResponse]
