"""UpdateFeatures (57): finalize levels of the cluster's features.

Versions 0 to 2. All are flexible. v1: the type of the upgrade; a request can only validate. v2:
one result for all features.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED, code_of, message_of
from odradek.broker.metadata.features import FeatureUpdate
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.protocol.pacing import paced

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def handle(
    services: Services, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Finalize the levels, all of them or none."""
    if not context.may_to_cluster(AclOperation.ALTER):
        return UpdateFeaturesResponse(error_code=_DENIED, error_message=_DENIED.sentence)
    # The field about downgrades in version 0 is ignored, as in Kafka.
    updates = [
        FeatureUpdate(one.feature, one.max_version_level, one.upgrade_type)
        for one in paced(request.feature_updates)
    ]
    try:
        await services.features.update(updates, validate_only=request.validate_only)
    except EXPLAINED as error:
        return UpdateFeaturesResponse(error_code=code_of(error), error_message=message_of(error))
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            # Kafka sends the name of the code here.
            UpdatableFeatureResult(feature=one.name, error_message=ErrorCode.NONE.name)
            for one in paced(updates)
        ],
    )
