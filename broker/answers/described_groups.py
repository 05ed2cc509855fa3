"""The common part of the APIs that describe groups: a group is described each time it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from odradek.broker.context import RequestContext
from odradek.broker.loop.repeats import answer_each
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.dataclass import dataclass
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced


class Described(Protocol):
    """A group in the response of one of the APIs."""

    error_code: int
    authorized_operations: int


G = TypeVar("G", bound=Described)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Describing(Generic[G, R]):
    """The functions by which one of the APIs describes groups, and responds with them."""

    describe: Callable[[str], G]
    refuse: Callable[[str, ErrorCode], G]
    respond: Callable[[list[G]], R]
    # The topics in a group's description; the client must be permitted to describe them.
    topics: Callable[[G], Iterable[str]] = lambda _: ()
    # Whether the empty id is refused; Kafka refuses it before it looks up the others.
    refuses_empty: bool = True


def describe_each(
    services: Services,
    context: RequestContext,
    group_ids: Sequence[str],
    how: Describing[G, R],
    *,
    shows_operations: bool,
) -> R:
    """Respond with descriptions of groups, and with the client's operations if it asks for them.

    As in Kafka the groups that it may not describe come first, and then the others by partition
    of __consumer_offsets. Raises CloseConnection for groups that are named too often.
    """
    may_all = context.authorizer is None
    permitted = context.permitted(AclOperation.DESCRIBE, ResourceKind.GROUP, group_ids)
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
        if shows_operations:
            group.authorized_operations = context.authorized_operations(
                ResourceKind.GROUP, group_id
            )
        topics = set() if may_all else set(how.topics(group))
        if not topics <= context.permitted(AclOperation.DESCRIBE, ResourceKind.TOPIC, topics):
            return how.refuse(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return group

    groups = answer_each(
        [*denied, *refused, *described],
        name=lambda group_id: group_id,
        answer=answer,
        size_bytes=lambda group: len(encode(how.respond([group]), context.api_version)),
    )
    return how.respond(groups)
