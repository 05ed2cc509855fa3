"""The quotas of users, client ids and addresses.

    GET  /api/quotas
    POST /api/quotas/alter {"user", "client_id", "ip", "set": {key: number}, "delete": [key]}

The name "" is that of the default: it counts for all that have no quota of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, ConsoleServices, require
from odradek.broker.web.console.body import Body
from odradek.broker.web.console.plan import Action, Plan
from odradek.broker.web.requests import Parameters, Problem
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from odradek.protocol.pacing import paced

# The members of a request, and Kafka's types of entities.
_ENTITIES: Mapping[str, str] = {"user": "user", "client_id": "client-id", "ip": "ip"}
_WORDS: Mapping[str, str] = {"user": "user", "client-id": "client id", "ip": "address"}


def make(broker: ConsoleServices, asker: Asker) -> Sequence[Action]:
    """Return the action on quotas."""
    plans = QuotaActions(asker)
    return (Action("alter", (*_ENTITIES, "set", "delete"), plans.alter),)


async def show(asker: Asker, actor: Actor, parameters: Parameters) -> Mapping[str, object]:
    """Return all quotas, for an answer. Raises Problem."""
    request = DescribeClientQuotasRequest(components=[], strict=False)
    answer = await asker.ask(actor, request, DescribeClientQuotasResponse)
    require(answer.error_code, answer.error_message)
    return {
        "quotas": [
            {
                "entity": {one.entity_type: one.entity_name or "" for one in entry.entity},
                "values": {one.key: one.value for one in entry.values},
            }
            for entry in paced(answer.entries or ())
        ]
    }


class QuotaActions:
    """Plans the action on quotas."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def alter(self, actor: Actor, body: Body) -> Plan:
        """Set and delete quotas of one entity."""
        named = {kind: body.optional_text(name) for name, kind in _ENTITIES.items()}
        chosen = {kind: name for kind, name in named.items() if name is not None}
        wanted = {key: _number(key, text) for key, text in body.named_texts("set").items()}
        removed = body.texts("delete")
        if not chosen:
            raise Problem(400, 'name the entity: user, client_id or ip; "" is the default')
        if not wanted and not removed:
            raise Problem(400, "nothing is to be altered: give set or delete")

        async def ask(*, validate_only: bool) -> Sequence[str]:
            entity = [
                EntityData(entity_type=kind, entity_name=name or None)
                for kind, name in chosen.items()
            ]
            ops = [OpData(key=key, value=wanted[key], remove=False) for key in wanted]
            ops += [OpData(key=key, value=0.0, remove=True) for key in removed]
            request = AlterClientQuotasRequest(
                entries=[EntryData(entity=entity, ops=ops)], validate_only=validate_only
            )
            answer = await self._asker.ask(actor, request, AlterClientQuotasResponse)
            require(answer.entries[0].error_code, answer.entries[0].error_message)
            return [f"The quotas of {subject} were altered."]

        subject = " with ".join(
            f"{_WORDS[kind]} {name}" if name else f"every other {_WORDS[kind]}"
            for kind, name in chosen.items()
        )
        await ask(validate_only=True)
        will = [f"Set {key} of {subject} to {wanted[key]:,g}." for key in wanted]
        will += [f"Delete {key} of {subject}." for key in removed]
        return Plan(will, lambda: ask(validate_only=False))


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise Problem(400, f"{key}={text} is not a number") from error
