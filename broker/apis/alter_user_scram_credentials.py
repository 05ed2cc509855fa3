"""AlterUserScramCredentials (51): create, change and remove users of SCRAM.

Version 0 only.
"""

from __future__ import annotations

import logging

from odradek.broker.context import RequestContext
from odradek.broker.errors import MetadataError, Refusal, code_of, message_of
from odradek.broker.orders.java import hash_order
from odradek.broker.security.authorization import AclOperation
from odradek.broker.security.scram_changes import alterations, plan_changes
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from odradek.protocol.pacing import paced

logger = logging.getLogger(__name__)


async def handle(
    services: Services, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Write all changes that are valid, or none of them, and return each user's result."""
    security = services.security
    named = hash_order((one.name for one in alterations(request)), pace=paced)
    if not context.may_to_cluster(AclOperation.ALTER):
        denied = Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _response(dict.fromkeys(named, denied))

    async def change() -> dict[str, Refusal | MetadataError | None]:
        users = security.scram_users
        plan = plan_changes(request, lambda *key: users.find(*key) is not None)
        try:
            if plan.changes:
                await users.change(plan.changes)
        except MetadataError as error:
            return dict.fromkeys(named, error)
        for (mechanism, user), made in paced(plan.changes.items()):
            done = "removed" if made is None else "wrote"
            logger.info("%s SCRAM credential user=%r mechanism=%s", done, user, mechanism)
        # Kafka iterates over three maps: users removed, users written and users refused.
        removed = [user for (_, user), made in paced(plan.changes.items()) if made is None]
        written = [user for (_, user), made in paced(plan.changes.items()) if made is not None]
        names = (removed, written, plan.refused)
        ordered = (hash_order(some, pace=paced) for some in names)
        return {name: plan.refused.get(name) for some in ordered for name in paced(some)}

    return _response(await security.changes.run(change))


def _response(
    outcomes: dict[str, Refusal] | dict[str, Refusal | MetadataError | None],
) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name,
                error_code=0 if error is None else code_of(error),
                error_message=None if error is None else message_of(error),
            )
            for name, error in paced(outcomes.items())
        ]
    )
