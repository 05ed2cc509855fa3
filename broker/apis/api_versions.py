"""ApiVersions (18): the APIs and versions that the broker serves.

A request of an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the table
(KIP-511), so that the client can choose again: see `unsupported_version`.

Versions 0 to 4. v1: the throttle time. v3: flexible, except for the answer's header; the client's
software (KIP-511); features (KIP-584). v4: features that begin at level 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from odradek.broker.api_table import API_VERSIONS
from odradek.broker.context import RequestContext
from odradek.broker.metadata.features import FEATURES, METADATA_VERSION
from odradek.broker.orders.java import copied_capacity, hash_order
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_KEY = 18
_BY_NAME = {one.name: one for one in FEATURES}
_IN_ORDER = [_BY_NAME[name] for name in hash_order(_BY_NAME)]  # as in Kafka
# GetTelemetrySubscriptions and PushTelemetry: served at any time, announced on demand.
_TELEMETRY_KEYS = frozenset({71, 72})

# The number of characters kept of a client's software name and version, per connection.
_SOFTWARE_CHARACTERS_MAX = 256

# ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN, in KIP-511's words: letters and digits,
# with "-" and "." between them.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    services: Services, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """Answer with the API table, or refuse a client whose software name or version is invalid."""
    if context.api_version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    software = request.client_software_name[:_SOFTWARE_CHARACTERS_MAX]
    version = request.client_software_version[:_SOFTWARE_CHARACTERS_MAX]
    context.client.software_name = software or "unknown"
    context.client.software_version = version or "unknown"
    features = services.features
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=_rows(
            API_VERSIONS
            if services.telemetry.is_announced
            else {key: API_VERSIONS[key] for key in API_VERSIONS.keys() - _TELEMETRY_KEYS}
        ),
        # Clients of version 3 fail on a lowest level of 0 (KAFKA-17011).
        supported_features=[
            SupportedFeatureKey(name=one.name, min_version=one.first, max_version=one.last)
            for one in _IN_ORDER
            if one.first > 0 or context.api_version > 3
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in _finalized(features.finalized)
        ],
    )


def _finalized(levels: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return features in the order of Kafka's map: a copy of the others, then one more put in."""
    others = sorted(levels.keys() - {METADATA_VERSION})
    capacity = copied_capacity(len(others))
    return [(one, levels[one]) for one in hash_order([*others, METADATA_VERSION], 0, capacity)]


def unsupported_version() -> ApiVersionsResponse:
    """Return the answer to a request of an unknown version. It is encoded in version 0."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_rows({_KEY: API_VERSIONS[_KEY]})
    )


def _rows(table: Mapping[int, tuple[int, int]]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=key, min_version=first, max_version=last)
        for key, (first, last) in sorted(table.items())
    ]
