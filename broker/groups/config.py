"""What of the broker's configuration governs groups and committed offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MINUTE_MS = 60_000


class BrokerOptions(Protocol):
    """The options of BrokerConfig that are read here, in Kafka's names."""

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
class GroupConfig:
    """The options of groups, with Kafka's defaults; swapped whole when they change."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 30 * MINUTE_MS
    max_size: int = 2**31 - 1
    # How long a member that has never been answered may wait for the others: it cannot send
    # heartbeats yet. A constant in Kafka (classicGroupNewMemberJoinTimeoutMs).
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * MINUTE_MS

    @staticmethod
    def of(options: BrokerOptions) -> GroupConfig:
        """Take the options of groups from the broker's."""
        return GroupConfig(
            initial_rebalance_delay_ms=options.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=options.group_min_session_timeout_ms,
            max_session_timeout_ms=options.group_max_session_timeout_ms,
            max_size=options.group_max_size,
            offset_metadata_max_bytes=options.offset_metadata_max_bytes,
            offsets_retention_ms=options.offsets_retention_minutes * MINUTE_MS,
            offsets_retention_check_interval_ms=options.offsets_retention_check_interval_ms,
        )
