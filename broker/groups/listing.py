"""Entries of groups of every kind in a list of groups, and the filters of ListGroups."""

from __future__ import annotations

from collections.abc import Container, Iterable

from odradek.broker.groups import responses
from odradek.broker.groups.commits import Group
from odradek.broker.groups.consumer import descriptions
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.group import listed as share_listed
from odradek.broker.groups.state import ClassicGroup
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.broker.groups.streams.group import listed as streams_listed
from odradek.dataclass import dataclass
from odradek.protocol.messages.list_groups import ListedGroup
from odradek.protocol.pacing import paced

# Kafka filters streams groups in this state by another name than the one that it shows.
_FILTERED_STATES = {"NotReady": "not_ready"}


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """The states and types that a client asks for, in lower case; none means all."""

    states: Container[str]
    types: Container[str]

    @staticmethod
    def of(states: Iterable[str], types: Iterable[str]) -> GroupFilter:
        """Take the filters of a request."""
        return GroupFilter(
            {state.strip().lower() for state in paced(states)},
            {kind.lower() for kind in paced(types)},
        )

    def passes(self, group: ListedGroup) -> bool:
        """Return whether a group is asked for."""
        state = _FILTERED_STATES.get(group.group_state) or group.group_state.lower()
        return (not self.states or state in self.states) and (
            not self.types or group.group_type in self.types
        )


def listed(group: Group | ShareGroup) -> ListedGroup:
    """Return a group's entry in a list."""
    match group:
        case ClassicGroup():
            return responses.listed(group)
        case ConsumerGroup():
            return descriptions.listed(group)
        case StreamsGroup():
            return streams_listed(group)
        case _:
            return share_listed(group)
