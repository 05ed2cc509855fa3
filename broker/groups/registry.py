"""The groups of one partition of __consumer_offsets, of every kind, by their ids."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.broker.groups.commits import Group
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.consumer.groups import ConsumerGroups
from odradek.broker.groups.kinds import GroupsOfKind, Order
from odradek.broker.groups.modern.tables import Timeline
from odradek.broker.groups.modern.topics import TopicView
from odradek.broker.groups.offsets import GroupOffsets
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.groups import Configs as ShareConfigs
from odradek.broker.groups.share.groups import ShareGroups
from odradek.broker.groups.share.groups import default_config as default_share_config
from odradek.broker.groups.state import ClassicGroup, Turn
from odradek.broker.groups.streams.groups import Configs as StreamsConfigs
from odradek.broker.groups.streams.groups import StreamsGroups
from odradek.broker.groups.streams.groups import default_config as default_streams_config
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OwnConfigs:
    """Functions that return the options of one group, for kinds whose groups may have own ones."""

    shares: ShareConfigs
    streams: StreamsConfigs


DEFAULT_CONFIGS = OwnConfigs(default_share_config, default_streams_config)


class Registry:
    """Groups of the classic and of the consumer protocol, share groups and streams groups.

    An id has a group of one kind only. Share groups have no offsets here. The Shard owns it.
    """

    __slots__ = ("_order", "classic", "config", "consumers", "shares", "streams")

    def __init__(
        self, config: GroupConfig, topics: TopicView, own: OwnConfigs = DEFAULT_CONFIGS
    ) -> None:
        self.config = config
        self._order: Order = Timeline()
        self.classic: GroupsOfKind[ClassicGroup] = GroupsOfKind(self._order)
        self.consumers = ConsumerGroups(topics, self.classic, GroupsOfKind(self._order))
        self.shares = ShareGroups(
            topics,
            own.shares,
            lambda name: self.get(name) is not None,
            GroupsOfKind(self._order),
        )
        self.streams = StreamsGroups(
            topics,
            own.streams,
            lambda name: name in self._order,
            self.classic,
            GroupsOfKind(self._order),
        )

    def get(self, group_id: str) -> Group | None:
        """Return the group with an id, if it is of a kind that may have offsets."""
        return (
            self.classic.get(group_id)
            or self.consumers.get(group_id)
            or self.streams.get(group_id)
        )

    def all(self) -> list[Group]:
        """Return all groups that may have offsets."""
        return [
            *self.classic.values(),
            *self.consumers.groups.values(),
            *self.streams.groups.values(),
        ]

    def in_order(self) -> Iterator[Group | ShareGroup]:
        """Iterate over the groups of all kinds in Kafka's order."""
        for group_id in self._order.in_order():
            yield self._order[group_id][group_id]

    def turn(self, group_id: str, now_ms: int) -> Turn | None:
        """Begin an operation on a classic group; return None when no such group has this id."""
        group = self.classic.get(group_id)
        return None if group is None else Turn(group, self.config, now_ms)

    def add(self, group_id: str, now_ms: int) -> ClassicGroup:
        """Create a classic group."""
        group = self.classic[group_id] = ClassicGroup(group_id, state_since_ms=now_ms)
        return group

    def offsets_of(self, group_id: str) -> GroupOffsets:
        """Return the offsets of a group, creating a simple group if none has this id."""
        group = self.get(group_id)
        if group is None:
            group = self.classic[group_id] = ClassicGroup(group_id)
        return group.offsets

    def forget(self, group: Group) -> None:
        """Drop a group whose tombstone is in the log; if it has offsets, a simple group stays."""
        self.consumers.groups.pop(group.group_id, None)
        self.streams.groups.pop(group.group_id, None)
        if group.offsets:
            self.classic[group.group_id] = ClassicGroup(group.group_id, offsets=group.offsets)
        else:
            self.classic.pop(group.group_id, None)
