"""What the APIs that describe groups share: each group is told, as often as it is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from broker.authorized_operations import ALL_OF_GROUP
from broker.repeats import answer_each
from protocol.compiler import encode
from protocol.errors import ErrorCode


class Described(Protocol):
    """A group as one of the APIs tells of it."""

    error_code: int
    authorized_operations: int


G = TypeVar("G", bound=Described)
R = TypeVar("R")


def describe_each(
    group_ids: Sequence[str],
    describe: Callable[[str], G],
    respond: Callable[[list[G]], R],
    *,
    tells_operations: bool,
    api_version: int,
) -> R:
    """Respond with groups described, and with what a client may do to them if so.

    Raises CloseConnection for groups that are named too often.
    """

    def answer(group_id: str) -> G:
        group = describe(group_id)
        if tells_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = ALL_OF_GROUP
        return group

    groups = answer_each(
        group_ids,
        name=lambda group_id: group_id,
        answer=answer,
        size_bytes=lambda group: len(encode(respond([group]), api_version)),
    )
    return respond(groups)
