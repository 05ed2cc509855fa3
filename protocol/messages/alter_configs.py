"""AlterConfigs (33): replace all configurations of a resource at once.

A configuration that the request leaves out returns to its default. IncrementalAlterConfigs is the
better choice; old clients know only this API.

Version notes: 2 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, string


@struct
class AlterableConfig:
    """One configuration."""

    name: string
    value: string | None


@struct
class AlterConfigsResource:
    """A resource and all its configurations."""

    resource_type: int8
    resource_name: string
    configs: list[AlterableConfig]


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Resources to change."""

    resources: list[AlterConfigsResource]
    validate_only: boolean


@struct
class AlterConfigsResourceResponse:
    """Whether one resource was changed."""

    error_code: int16 = field()
    error_message: string | None
    resource_type: int8
    resource_name: string


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """The result for each resource."""

    throttle_time_ms: int32 = field()
    responses: list[AlterConfigsResourceResponse]
