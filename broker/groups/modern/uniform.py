"""The uniform assignor: members get equal numbers of partitions, and as few as possible move.

If all members read the same topics, it is enough to take partitions from members with too many
and to give them to members with too few; otherwise uneven.py balances topic by topic.

Kafka's source: UniformAssignor, UniformHomogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.groups.modern import uneven
from odradek.broker.groups.modern.draft import Draft, finish
from odradek.broker.groups.modern.spec import Assignment, GroupSpec
from odradek.broker.groups.modern.tables import PLACES, Table, in_map_order, in_set_order
from odradek.broker.orders.java import uuid_hash

NAME = "uniform"


def assign(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Compute a target assignment."""
    if not spec.members:
        return {}
    return _assign_alike(spec) if spec.is_homogeneous else uneven.assign(spec)


def _assign_alike(spec: GroupSpec) -> Mapping[str, Assignment]:
    first = next(iter(spec.members.values()))
    room = max(int(first.named_count / 0.75) + 1, PLACES)
    topics = Table(uuid_hash, first.topics, capacity=room)
    if not topics:
        return {}
    free: list[tuple[bytes, int]] = []
    total = 0
    for topic_id in topics:
        count = spec.partition_count(topic_id)
        free += ((topic_id, p) for p in range(count) if not spec.is_assigned(topic_id, p))
        total += count
    each, extra = divmod(total, len(spec.members))
    drafts = {}
    unfilled: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(spec.members.items()):
        drafts[member_id] = draft = Draft(member.assignment)
        gets_extra = extra > 0
        quota = _keep(draft, member.assignment, topics, each + gets_extra, free)
        if gets_extra and quota > 0 and len(spec.members) - index > extra:
            # Later members may have one partition more already, and can keep it.
            quota, gets_extra = quota - 1, False
        extra -= gets_extra
        if quota > 0:
            unfilled.append((member_id, quota))
    start = 0
    for member_id, quota in unfilled:
        for topic_id, partition in free[start : start + quota]:
            drafts[member_id].add(topic_id, partition)
        start += quota
    return finish(drafts)


def _keep(
    draft: Draft,
    present: Assignment,
    topics: Table[bytes],
    quota: int,
    free: list[tuple[bytes, int]],
) -> int:
    """Remove partitions beyond a quota; return the number that the member may still get."""
    for topic_id in in_map_order(present):
        if topic_id not in topics:
            draft.remove_topic(topic_id)
            continue
        partitions = present[topic_id]
        if len(partitions) <= quota:
            quota -= len(partitions)
            continue
        for partition in in_set_order(partitions)[quota:]:
            draft.remove(topic_id, partition)
            free.append((topic_id, partition))
        quota = 0
    return quota
