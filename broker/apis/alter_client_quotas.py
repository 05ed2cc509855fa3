"""AlterClientQuotas (49): set and remove quotas of users, client ids and addresses.

Versions 0 to 1. v1: flexible.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from odradek.broker.context import RequestContext
from odradek.broker.errors import Explained, Refusal, code_of, message_of
from odradek.broker.orders.java import hash_places, place_order
from odradek.broker.security.authorization import AclOperation
from odradek.broker.security.quotas.entities import Entity, entity_hash, named_entity
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    EntityData,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change each entity's quotas independently; answer when the changes are durable."""
    if not context.may_to_cluster(AclOperation.ALTER_CONFIGS):
        refusal = Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return AlterClientQuotasResponse(
            entries=[_outcome(_parts(one.entity), refusal) for one in paced(request.entries)]
        )
    outcomes = await services.security.quotas.alter(
        [
            (
                named_entity(_parts(entry.entity), paced),
                [(one.key, None if one.remove else one.value) for one in paced(entry.ops)],
            )
            for entry in paced(request.entries)
        ],
        validate_only=request.validate_only,
    )
    # A refused entity may have any number of parts.
    hash_of = partial(entity_hash, pace=paced)
    in_order = place_order(outcomes, hash_of, hash_places(len(outcomes)), paced)
    return AlterClientQuotasResponse(
        entries=[_outcome(entity, outcomes[entity]) for entity in paced(in_order)]
    )


def _parts(entity: Iterable[EntityData]) -> Entity:
    return tuple((one.entity_type, one.entity_name) for one in paced(entity))


def _outcome(entity: Entity, outcome: Explained | None) -> AlteredEntryData:
    return AlteredEntryData(
        error_code=0 if outcome is None else code_of(outcome),
        error_message=None if outcome is None else message_of(outcome),
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in paced(entity)],
    )
