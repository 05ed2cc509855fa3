"""Requests to the coordinator of a group or a transaction, wherever it is now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import fields
from enum import IntEnum
from typing import Any, TypeVar

from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, require
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.pacing import paced

T = TypeVar("T")

# A coordinator that does not know yet that it is one, or loads its state, has done nothing.
_PASSING = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
_PATIENCE_S, _PAUSE_S = 5.0, 0.05


class KeyType(IntEnum):
    """The kind of a coordinator's key."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of a key, and the person who asks it."""

    asker: Asker
    actor: Actor
    key: str
    kind: KeyType = KeyType.GROUP

    async def ask(self, request: Any, response: type[T]) -> T:
        """Send a request to the coordinator, again while there is none. Raises Problem."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _PATIENCE_S
        while True:
            found = await self._find()
            if found.error_code in _PASSING:
                errors = {found.error_code}
            else:
                require(found.error_code, found.error_message)
                answer = await self.asker.ask(self.actor, request, response, found.node_id)
                errors = set(error_codes(answer))
                if not errors & _PASSING:
                    return answer
            if loop.time() > end_s:
                require(min(errors & _PASSING), None, self.key)
            await asyncio.sleep(_PAUSE_S)

    async def _find(self) -> Any:
        request = FindCoordinatorRequest(key_type=self.kind, coordinator_keys=[self.key])
        answer = await self.asker.ask(self.actor, request, FindCoordinatorResponse)
        return answer.coordinators[0]


def error_codes(answer: Any) -> Iterator[int]:
    """Iterate over the error codes of an answer, at any depth."""
    for field in fields(answer):
        value = getattr(answer, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(value, list):
            for one in paced(value):
                if hasattr(one, "__dataclass_fields__"):
                    yield from error_codes(one)
