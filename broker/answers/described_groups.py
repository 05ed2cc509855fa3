"""What the APIs that describe groups share: each group is told, as often as it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from broker.context import RequestContext
from broker.loop.repeats import answer_each
from broker.security.authorization import ResourceKind
from broker.security.authorized_operations import Operation
from broker.services import Services
from protocol.compiler import encode
from protocol.errors import ErrorCode
from protocol.pacing import paced


class Described(Protocol):
    """A group as one of the APIs tells of it."""

    error_code: int
    authorized_operations: int


G = TypeVar("G", bound=Described)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Describing(Generic[G, R]):
    """How one of the APIs describes groups, and responds with them."""

    describe: Callable[[str], G]
    refuse: Callable[[str, ErrorCode], G]
    respond: Callable[[list[G]], R]
    # The topics that a group tells of, which the client may have to be allowed to describe.
    topics: Callable[[G], Iterable[str]] = lambda _: ()
    # Whether the empty id is refused, which Kafka does before it asks for the others.
    refuses_empty: bool = True


def describe_each(
    services: Services,
    context: RequestContext,
    group_ids: Sequence[str],
    how: Describing[G, R],
    *,
    tells_operations: bool,
) -> R:
    """Respond with groups described, and with what the client may do to them if so.

    As in Kafka those come first that it may not describe, and then partition by partition what
    lives in one. Raises CloseConnection for groups that are named too often.
    """
    may_all = services.security.authorizer is None
    permitted = context.permitted(Operation.DESCRIBE, ResourceKind.GROUP, group_ids)
    denied = [group_id for group_id in paced(group_ids) if group_id not in permitted]
    asked = [group_id for group_id in paced(group_ids) if group_id in permitted]
    refused = [group_id for group_id in paced(asked) if how.refuses_empty and not group_id]
    described = [group_id for group_id in paced(asked) if group_id or not how.refuses_empty]
    described = services.groups.in_asking_order(described)

    def answer(group_id: str) -> G:
        if group_id not in permitted:
            return how.refuse(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        group = how.describe(group_id)
        if group.error_code != ErrorCode.NONE:
            return group
        if tells_operations:
            group.authorized_operations = context.authorized_operations(
                ResourceKind.GROUP, group_id
            )
        topics = set() if may_all else set(how.topics(group))
        if not topics <= context.permitted(Operation.DESCRIBE, ResourceKind.TOPIC, topics):
            return how.refuse(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return group

    groups = answer_each(
        [*denied, *refused, *described],
        name=lambda group_id: group_id,
        answer=answer,
        size_bytes=lambda group: len(encode(how.respond([group]), context.api_version)),
    )
    return how.respond(groups)
