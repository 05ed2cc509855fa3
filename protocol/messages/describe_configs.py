"""DescribeConfigs (32): configurations in force, and where they come from.

Resource types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.

Version notes: 1 adds each value's source and synonyms; 3 adds type and documentation
(KIP-569); 4 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, string


@struct
class DescribeConfigsResource:
    """A resource and the keys to describe (null: all)."""

    resource_type: int8
    resource_name: string
    configuration_keys: list[string] | None


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    """Resources to describe."""

    resources: list[DescribeConfigsResource]
    include_synonyms: boolean = field("1+")
    include_documentation: boolean = field("3+")


@struct
class DescribeConfigsSynonym:
    """Another place that could give the value, in order of precedence."""

    name: string = field("1+")
    value: string | None = field("1+")
    source: int8 = field("1+")


@struct
class DescribeConfigsResourceResult:
    """One configuration; the value is null when it is sensitive."""

    name: string
    value: string | None
    read_only: boolean
    config_source: int8 = field("1+", default=-1)
    is_sensitive: boolean
    synonyms: list[DescribeConfigsSynonym] = field("1+")
    config_type: int8 = field("3+")
    documentation: string | None = field("3+")


@struct
class DescribeConfigsResult:
    """One resource's configurations."""

    error_code: int16 = field()
    error_message: string | None
    resource_type: int8
    resource_name: string
    configs: list[DescribeConfigsResourceResult]


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    """The configurations."""

    throttle_time_ms: int32 = field()
    results: list[DescribeConfigsResult]
