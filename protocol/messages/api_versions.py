"""ApiVersions (18): the APIs and versions that the broker serves.

This is the only API that a broker answers in any version: a request of an unknown version gets a
response of version 0 with UNSUPPORTED_VERSION and the list (KIP-511). The header of the response
never has tagged fields, so that every client can read it.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, int64, string


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    """Clients send it first on a connection."""

    client_software_name: string = field("3+")
    client_software_version: string = field("3+")


@struct
class ApiVersion:
    """An API and the versions of it that the broker serves."""

    api_key: int16
    min_version: int16
    max_version: int16


@struct
class SupportedFeatureKey:
    """A feature and the levels that the broker supports (KIP-584)."""

    name: string = field("3+")
    min_version: int16 = field("3+")
    max_version: int16 = field("3+")


@struct
class FinalizedFeatureKey:
    """A feature and the levels that are finalized for the cluster."""

    name: string = field("3+")
    max_version_level: int16 = field("3+")
    min_version_level: int16 = field("3+")


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """The API table, and the features of the broker and the cluster."""

    error_code: int16 = field()
    api_keys: list[ApiVersion]
    throttle_time_ms: int32 = field("1+")
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0)
    finalized_features_epoch: int64 = field("3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2)
    zk_migration_ready: boolean = field("3+", tag=3, default=False)
