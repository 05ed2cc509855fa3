"""UpdateFeatures (57): finalize levels of the cluster's features (KIP-584).

Version notes: 1 names the kind of upgrade and can only validate; 2 answers for all features at
once, without a result for each.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, string


@struct
class FeatureUpdateKey:
    """A level to finalize; upgrade types are 1 upgrade, 2 safe and 3 unsafe downgrade."""

    feature: string
    max_version_level: int16
    allow_downgrade: boolean = field("0")
    upgrade_type: int8 = field("1+", default=1)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """Either all of the updates are made, or none."""

    timeout_ms: int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: boolean = field("1+")


@struct
class UpdatableFeatureResult:
    """The result for one update."""

    feature: string
    error_code: int16 = field()
    error_message: string | None = field()


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """The result of the updates."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field()
    results: list[UpdatableFeatureResult] = field("0-1")
