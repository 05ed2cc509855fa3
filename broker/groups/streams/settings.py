"""The settings of streams groups, which override the broker's settings for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Set

from odradek.broker.groups.streams.turn import StreamsGroupConfig
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.store import Resource, ResourceType
from odradek.config.streams import StreamsConfig
from odradek.config.values import INT32_MAX

_CACHED_MAX = 4_096


class StreamsSettings:
    """The settings by group, resolved on first use; the event loop owns it."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs
        self._cached: dict[str, StreamsGroupConfig] = {}
        configs.on_changed.append(lambda _: self._cached.clear())
        configs.resources.on_changed.append(self._changed)

    def of(self, group_id: str) -> StreamsGroupConfig:
        """Return the settings of a group in force; do not keep them, as they may change."""
        found = self._cached.get(group_id)
        if found is None:
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            own = self._configs.resources.of_type(ResourceType.GROUP).get(group_id, {})
            found = self._cached[group_id] = _read(own, self._configs.of(StreamsConfig))
        return found

    def _changed(self, resources: Set[Resource]) -> None:
        for one in resources:
            if one.type is ResourceType.GROUP:
                self._cached.pop(one.name, None)


def _read(own: Mapping[str, str], broker: StreamsConfig) -> StreamsGroupConfig:
    """Read a group's own settings within the broker's bounds, which may have changed since."""

    def number(name: str, default: int, least: int, most: int) -> int:
        text = own.get(f"streams.{name}")
        return default if text is None else min(max(int(text), least), most)

    return StreamsGroupConfig(
        members_max=broker.group_streams_max_size,
        session_timeout_ms=number(
            "session.timeout.ms",
            broker.group_streams_session_timeout_ms,
            broker.group_streams_min_session_timeout_ms,
            broker.group_streams_max_session_timeout_ms,
        ),
        heartbeat_interval_ms=number(
            "heartbeat.interval.ms",
            broker.group_streams_heartbeat_interval_ms,
            broker.group_streams_min_heartbeat_interval_ms,
            broker.group_streams_max_heartbeat_interval_ms,
        ),
        assignment_interval_ms=number(
            "assignment.interval.ms",
            broker.group_streams_assignment_interval_ms,
            broker.group_streams_min_assignment_interval_ms,
            broker.group_streams_max_assignment_interval_ms,
        ),
        initial_delay_ms=number(
            "initial.rebalance.delay.ms",
            broker.group_streams_initial_rebalance_delay_ms,
            0,
            INT32_MAX,
        ),
        standby_count=number(
            "num.standby.replicas",
            broker.group_streams_num_standby_replicas,
            0,
            broker.group_streams_max_standby_replicas,
        ),
    )
