"""The settings of share groups, which override the broker's settings for all of them.

A group's settings are read for every acquired record, so they are resolved once and kept until
a setting changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.store import Resource, ResourceType
from odradek.broker.shares.partition import PartitionConfig
from odradek.config.resolution import Entry
from odradek.dataclass import dataclass

_CACHED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """The settings of one share group."""

    partition: PartitionConfig
    auto_offset_reset: str
    is_committed: bool
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class ShareSettings:
    """The settings by group; the event loop owns it."""

    def __init__(self, configs: Configs) -> None:
        self._resources = configs.resources
        self._cached: dict[str, ShareGroupSettings] = {}
        configs.on_changed.append(lambda _: self._cached.clear())
        configs.resources.on_changed.append(self._changed)

    def of(self, group_id: str) -> ShareGroupSettings:
        """Return the settings of a group in force; do not keep them, as they may change."""
        found = self._cached.get(group_id)
        if found is None:
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            entries = self._resources.entries(Resource(ResourceType.GROUP, group_id))
            found = self._cached[group_id] = _read(entries)
        return found

    def _changed(self, resources: Set[Resource]) -> None:
        for one in resources:
            if one.type is ResourceType.GROUP:
                self._cached.pop(one.name, None)


def _read(entries: Mapping[str, Entry]) -> ShareGroupSettings:
    def text(name: str) -> str:
        return entries[f"share.{name}"].value or ""

    return ShareGroupSettings(
        partition=PartitionConfig(
            lock_duration_ms=int(text("record.lock.duration.ms")),
            deliveries_max=int(text("delivery.count.limit")),
            in_flight_max=int(text("partition.max.record.locks")),
            may_renew=text("renew.acknowledge.enable") == "true",
        ),
        auto_offset_reset=text("auto.offset.reset"),
        is_committed=text("isolation.level") == "read_committed",
        session_timeout_ms=int(text("session.timeout.ms")),
        heartbeat_interval_ms=int(text("heartbeat.interval.ms")),
        assignment_interval_ms=int(text("assignment.interval.ms")),
    )
