"""Requests about groups of any type."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.cli.refusals import Act, check
from odradek.cli.wire.client import Wire
from odradek.cli.words import state_name
from odradek.dataclass import dataclass
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

# The least version that filters by type.
_TYPES_VERSION = 5


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group; state and type are constants, such as EMPTY and SHARE."""

    group: str
    state: str
    type: str
    protocol: str


def list_groups(wire: Wire, types: Sequence[str] = ()) -> list[ListedGroup]:
    """List the groups of all types or of some, from all brokers, by name.

    Raises CommandError, which is Unavailable where the brokers know no types.
    """
    act = Act("list groups", "DESCRIBE on the cluster, or on groups")
    requests = dict.fromkeys(wire.brokers, ListGroupsRequest(types_filter=list(types)))
    answers = wire.repeat(
        lambda: wire.ask_each(requests, ListGroupsResponse, act, least=_TYPES_VERSION),
        lambda each: [one.error_code for one in each.values()],
    )
    found = []
    for answer in answers.values():
        check(answer.error_code, act)
        found += [
            ListedGroup(
                one.group_id,
                state_name(one.group_state),
                one.group_type.upper(),
                one.protocol_type,
            )
            for one in answer.groups
        ]
    return sorted(found, key=lambda one: one.group)


def delete_group(wire: Wire, name: str) -> None:
    """Delete a group without members; raises CommandError."""
    act = Act(f"delete group {name}", f"DELETE on group {name}")
    _, answer = wire.ask_coordinator(
        name,
        DeleteGroupsRequest(groups_names=[name]),
        DeleteGroupsResponse,
        act,
        lambda one: [result.error_code for result in one.results],
    )
    for result in answer.results:
        check(result.error_code, act)
