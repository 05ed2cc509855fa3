"""The part of the broker's configuration that governs groups and committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol

from odradek.config.consumer import ConsumerConfig
from odradek.dataclass import dataclass

MINUTE_MS = 60_000
# The number of groups whose resolved settings are cached.
_OWN_MAX = 4_096


class BrokerOptions(Protocol):
    """The options of BrokerConfig that this module reads, under Kafka's names."""

    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...
    @property
    def group_min_session_timeout_ms(self) -> int: ...
    @property
    def group_max_session_timeout_ms(self) -> int: ...
    @property
    def group_max_size(self) -> int: ...
    @property
    def offset_metadata_max_bytes(self) -> int: ...
    @property
    def offsets_retention_minutes(self) -> int: ...
    @property
    def offsets_retention_check_interval_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The settings that a consumer group may override, with Kafka's defaults."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The options of groups, with Kafka's defaults; replaced as a whole when one changes."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 30 * MINUTE_MS
    max_size: int = 2**31 - 1
    # The time for which a member without a first answer may wait for the others: it cannot send
    # heartbeats yet. A constant in Kafka (classicGroupNewMemberJoinTimeoutMs).
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS
    serves_consumers: bool = True
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    may_upgrade: bool = True
    may_downgrade: bool = True
    regex_refresh_interval_ms: int = 10 * MINUTE_MS
    consumer_defaults: ConsumerSettings = ConsumerSettings()
    # The settings of a group that overrides some, else None. They are resolved on first use: very
    # many groups may have some, and each change of a setting creates a new GroupConfig.
    consumer_own: Callable[[str], ConsumerSettings | None] = lambda group_id: None

    def consumer(self, group_id: str) -> ConsumerSettings:
        """Return the settings of a consumer group."""
        return self.consumer_own(group_id) or self.consumer_defaults

    @staticmethod
    def of(
        options: BrokerOptions,
        consumers: ConsumerConfig,
        groups: Mapping[str, Mapping[str, str]],
        *,
        serves_consumers: bool,
    ) -> GroupConfig:
        """Take the options of groups from the broker's options and the groups' own settings."""
        policy = consumers.group_consumer_migration_policy.lower()
        defaults = ConsumerSettings(
            session_timeout_ms=consumers.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=consumers.group_consumer_heartbeat_interval_ms,
            assignment_interval_ms=consumers.group_consumer_assignment_interval_ms,
        )
        return GroupConfig(
            serves_consumers=serves_consumers
            and "consumer" in consumers.group_coordinator_rebalance_protocols,
            consumer_max_size=consumers.group_consumer_max_size,
            consumer_assignors=consumers.group_consumer_assignors,
            may_upgrade=policy in {"upgrade", "bidirectional"},
            may_downgrade=policy in {"downgrade", "bidirectional"},
            regex_refresh_interval_ms=consumers.group_consumer_regex_refresh_interval_ms,
            consumer_defaults=defaults,
            consumer_own=lru_cache(_OWN_MAX)(
                lambda group_id: (
                    _own(consumers, groups[group_id], defaults) if group_id in groups else None
                )
            ),
            initial_rebalance_delay_ms=options.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=options.group_min_session_timeout_ms,
            max_session_timeout_ms=options.group_max_session_timeout_ms,
            max_size=options.group_max_size,
            offset_metadata_max_bytes=options.offset_metadata_max_bytes,
            offsets_retention_ms=options.offsets_retention_minutes * MINUTE_MS,
            offsets_retention_check_interval_ms=options.offsets_retention_check_interval_ms,
        )


def _own(
    consumers: ConsumerConfig, own: Mapping[str, str], defaults: ConsumerSettings
) -> ConsumerSettings:
    """Read a group's own settings within the broker's bounds, which may have changed since."""

    def within(name: str, default: int, least: int, most: int) -> int:
        return min(max(int(own[name]), least), most) if name in own else default

    return ConsumerSettings(
        session_timeout_ms=within(
            "consumer.session.timeout.ms",
            defaults.session_timeout_ms,
            consumers.group_consumer_min_session_timeout_ms,
            consumers.group_consumer_max_session_timeout_ms,
        ),
        heartbeat_interval_ms=within(
            "consumer.heartbeat.interval.ms",
            defaults.heartbeat_interval_ms,
            consumers.group_consumer_min_heartbeat_interval_ms,
            consumers.group_consumer_max_heartbeat_interval_ms,
        ),
        assignment_interval_ms=within(
            "consumer.assignment.interval.ms",
            defaults.assignment_interval_ms,
            consumers.group_consumer_min_assignment_interval_ms,
            consumers.group_consumer_max_assignment_interval_ms,
        ),
    )
