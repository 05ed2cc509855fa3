"""DescribeClientQuotas (48): the quotas of the entities that match a filter.

The checks and their words are those of Kafka's ClientQuotasImage.describe.

Versions 0 to 1. v1: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.context import RequestContext
from odradek.broker.errors import Refusal, message_of
from odradek.broker.security.authorization import AclOperation
from odradek.broker.security.quotas.entities import CLIENT_ID, IP, TYPES, USER, Entity, ordered
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from odradek.protocol.pacing import paced

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_NAMES = {_EXACT: "MATCH_TYPE_EXACT", _DEFAULT: "MATCH_TYPE_DEFAULT", _ANY: "MATCH_TYPE_SPECIFIED"}


def handle(
    services: Services, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return the entities that match, with their quotas."""
    if not context.may_to_cluster(AclOperation.DESCRIBE_CONFIGS):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeClientQuotasResponse(error_code=denied, error_message=None, entries=None)
    try:
        _check(request.components)
    except Refusal as refusal:
        return DescribeClientQuotasResponse(
            error_code=refusal.code, error_message=message_of(refusal), entries=None
        )
    return DescribeClientQuotasResponse(
        error_message="",
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in ordered(quotas)],
            )
            for entity, quotas in paced(services.security.quotas.in_order())
            if _matches(entity, request)
        ],
    )


def _check(components: Sequence[ComponentData]) -> None:
    seen: set[str] = set()
    for one in components:
        kind, match = one.entity_type, one.match
        if not kind:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in seen:
            message = f"Entity type {kind} cannot appear more than once in the filter."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if kind not in TYPES:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if one.match_type not in _NAMES:
            message = f"Unknown match type {one.match_type}"
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if one.match_type == _EXACT and match is None:
            message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if one.match_type != _EXACT and match is not None:
            message = (
                f"Request specified {_NAMES[one.match_type]}, but also specified a match string."
            )
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        seen.add(kind)
    if IP in seen and seen & {USER, CLIENT_ID}:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        )


def _matches(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    parts = dict(entity)
    return all(
        one.entity_type in parts
        and (one.match_type == _ANY or parts[one.entity_type] == one.match)
        for one in request.components
    )
