"""The values of groups for /metrics: states, members, committed offsets, lag."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.broker.counters.lag import lag, share_lag
from odradek.broker.groups.commits import Group
from odradek.dataclass import dataclass
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.observability.observed import Observed

# The share-partitions that are read in one turn of the event loop.
_SHARES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A group's offset in a partition; the lag is None while the partition is offline."""

    group: str
    topic: str
    partition: int
    offset: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A share group's offset in a partition; None is a value that is not known yet."""

    group: str
    topic: str
    partition: int
    start_offset: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The values of all groups."""

    states: Mapping[tuple[str, str], int]  # by type and state
    members: Sequence[tuple[str, int]]
    offsets: Sequence[OffsetRow]
    offset_count: int  # of all groups, shown or not
    share_members: Sequence[tuple[str, int]] = ()
    shares: Sequence[ShareRow] = ()
    share_count: int = 0  # of all share-partitions, shown or not


async def read_groups(broker: Observed) -> GroupRows:
    """Read the groups; when there are too many partitions, the last groups by name are left out.

    So the groups that are left out are always the same ones.
    """
    states: Counter[tuple[str, str]] = Counter()
    found: list[tuple[Group, int]] = []
    share_members: list[tuple[str, int]] = []
    for shard in broker.groups.runtime.machines:
        for classic in shard.groups.values():
            states["classic", classic.state.value] += 1
            found.append((classic, len(classic.membership)))
        for consumers in shard.consumers.groups.values():
            states["consumer", consumers.state.value] += 1
            found.append((consumers, len(consumers.members)))
        for streams in shard.streams.groups.values():
            states["streams", streams.state.value] += 1
            found.append((streams, len(streams.members)))
        for share in shard.shares.groups.values():
            states["share", share.state.value] += 1
            share_members.append((share.group_id, len(share.members)))
    found.sort(key=lambda one: one[0].group_id)
    offsets: list[OffsetRow] = []
    offset_count = 0
    limit = broker.config.odradek_group_series_max
    for group, _ in found:
        await asyncio.sleep(0)
        rows = _offsets(broker, group)
        offset_count += len(rows)
        offsets += rows[: max(limit - len(offsets), 0)]
    members = [(group.group_id, count) for group, count in found[:limit]]
    shares, share_count = await _shares(broker, limit)
    return GroupRows(
        states, members, offsets, offset_count, sorted(share_members)[:limit], shares, share_count
    )


async def _shares(broker: Observed, limit: int) -> tuple[list[ShareRow], int]:
    """Return the first share-partitions by name, up to a limit, and the number of all."""
    known = broker.shares.states.known()
    known.sort(key=lambda one: one[0])
    rows: list[ShareRow] = []
    for at, (key, state) in enumerate(known[:limit]):
        if at % _SHARES_AT_ONCE == _SHARES_AT_ONCE - 1:
            await asyncio.sleep(0)
        topic = broker.topics.by_id(key.topic_id)
        if topic is None:
            continue
        numbered = key.partition < len(topic.partitions)
        log = topic.partitions[key.partition] if numbered else None
        start = None if state.start_offset < 0 else state.start_offset
        end_offset = log.high_watermark if isinstance(log, Log) else None
        behind = share_lag(end_offset, state.start_offset, state.delivery_complete_count)
        rows.append(ShareRow(key.group_id, topic.name, key.partition, start, behind))
    return rows, len(known)


def _offsets(broker: Observed, group: Group) -> list[OffsetRow]:
    rows = []
    for name, partitions in group.offsets.by_topic.items():
        topic = broker.topics.get(name)
        if topic is None:
            continue
        for number, committed in partitions.items():
            log = topic.partitions[number] if number < len(topic.partitions) else None
            behind = lag(log, committed.offset) if isinstance(log, Log) else None
            rows.append(OffsetRow(group.group_id, name, number, committed.offset, behind))
    return rows
