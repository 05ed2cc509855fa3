"""The groups as /metrics shows them: their states and members, what they committed, their lag."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.groups.commits import Group
from broker.lag import lag
from storage.log import Log

if TYPE_CHECKING:
    from broker.composition import Broker


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """Where a group stands in a partition; the lag is None while the partition is offline."""

    group: str
    topic: str
    partition: int
    offset: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupRows:
    """What is shown of groups."""

    states: Mapping[tuple[str, str], int]  # by type and state
    members: Sequence[tuple[str, int]]
    offsets: Sequence[OffsetRow]
    offset_count: int  # of all, shown or not


async def read_groups(broker: Broker) -> GroupRows:
    """Note the groups; once there are too many partitions, the last groups by name are left out.

    Where nothing else is asked for, those are always the same ones.
    """
    states: Counter[tuple[str, str]] = Counter()
    found: list[tuple[Group, int]] = []
    for shard in broker.groups.runtime.machines:
        for classic in shard.groups.values():
            states["classic", classic.state.value] += 1
            found.append((classic, len(classic.membership)))
        for consumers in shard.consumers.groups.values():
            states["consumer", consumers.state.value] += 1
            found.append((consumers, len(consumers.members)))
        for share in shard.shares.groups.values():
            states["share", share.state.value] += 1
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
    return GroupRows(states, members, offsets, offset_count)


def _offsets(broker: Broker, group: Group) -> list[OffsetRow]:
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
