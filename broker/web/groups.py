"""The groups over HTTP: members, partitions and lag.

    GET /api/groups            all groups, with the total lag of their partitions
    GET /api/group?group=G     one group: its members, and its partitions one by one

The lag of a partition counts the offsets up to the last stable offset that the group has not
read; this broker knows it if it leads the partition. Share groups have no committed offsets: their
lag is that of DescribeShareGroupOffsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.counters.lag import lag
from odradek.broker.groups.consumer.embedded import read_assignment
from odradek.broker.security.authorization import ResourceKind
from odradek.broker.web.concurrency import ConcurrencyLimiter
from odradek.broker.web.requests import Parameters, Problem, answer_from_thread, is_private
from odradek.broker.web.rights import describable
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages import streams_group_describe
from odradek.protocol.messages.list_groups import ListedGroup
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.web.services import WebServices

Json = dict[str, object]
Partition = tuple[str, int]

_DESCRIBE_VERSION = 6
# The rows that are built in one turn of the event loop, 5 us each; a group takes as long as ten.
_ROWS_AT_ONCE = 500
_GROUP_AS_ROWS = 10
_UNKNOWN_COUNT = -1


@dataclass(slots=True)
class Reading:
    """A group's place in a partition; unknown values are None."""

    topic: str
    partition: int
    offset: int | None
    end_offset: int | None
    lag: int | None
    # The records after the offset that a share group has finished with.
    complete: int = 0
    member: str | None = None


def add_group_routes(app: web.Application, broker: WebServices, lists: ConcurrencyLimiter) -> None:
    """Add the routes about groups to an application."""
    routes = GroupRoutes(broker)
    app.router.add_get("/api/groups", lists.in_turn(routes.groups))
    app.router.add_get("/api/group", lists.in_turn(routes.group))


class GroupRoutes:
    """Answers as JSON; the event loop owns it."""

    def __init__(self, broker: WebServices) -> None:
        self._broker = broker

    async def groups(self, request: web.Request) -> web.Response:
        """Answer with all groups."""
        Parameters(request, ())
        groups = []
        breaths = _Breaths()
        listed = self._listed()
        names = (one.group_id for one in listed)
        shown = describable(self._broker, request, ResourceKind.GROUP, names)
        for group in listed:
            if shown is not None and group.group_id not in shown:
                continue
            await breaths.after(_GROUP_AS_ROWS)
            rows = await self._rows(group, breaths)
            groups.append({**_head(group), **self._members_of(group), **_lag(rows)})
            if is_private(request):
                groups[-1]["unknown"] = [
                    (row.topic, row.partition, row.offset, row.complete)
                    for row in rows
                    if row.offset is not None and row.end_offset is None
                ]
        return await answer_from_thread(
            lambda: {"groups": sorted(groups, key=lambda one: str(one["group"]))}
        )

    async def group(self, request: web.Request) -> web.Response:
        """Answer with a group, its members and its partitions."""
        name = Parameters(request, ("group",)).text("group")
        if not name:
            raise Problem(400, "name the group: group=")
        found = next((one for one in self._listed() if one.group_id == name), None)
        if found is None:
            raise Problem(404, f"there is no group {name}: /api/groups lists all groups")
        members, owners = self._members(found)
        rows = await self._rows(found, _Breaths())
        is_shown = not is_private(request)

        def body() -> Json:
            for row in rows:
                row.member = owners.get((row.topic, row.partition))
            rows.sort(key=lambda row: (row.topic, row.partition))
            shown = [asdict(row) for row in rows]
            for one in shown if is_shown else ():
                del one["complete"]
            return {**_head(found), **_lag(rows), "members": members, "partition_rows": shown}

        return await answer_from_thread(body)

    def _listed(self) -> list[ListedGroup]:
        error, groups = self._broker.groups.list_groups((), ())
        if error is not ErrorCode.NONE:
            raise Problem(503, f"the groups are not known yet, try again: {error.sentence}")
        return groups

    async def _rows(self, group: ListedGroup, breaths: _Breaths) -> list[Reading]:
        """Return a group's place in each partition that it has read."""
        if group.group_type == "share":
            return await self._share_rows(group.group_id, breaths)
        asked = OffsetFetchRequestGroup(group_id=group.group_id, topics=None)
        found = self._broker.groups.fetch(asked, require_stable=False)
        rows = list[Reading]()
        for topic in found.topics:
            for one in topic.partitions:
                rows.append(self._row(topic.name, one.partition_index, one.committed_offset))
                await breaths.after(1)
        return rows

    async def _share_rows(self, group_id: str, breaths: _Breaths) -> list[Reading]:
        broker, rows = self._broker, list[Reading]()
        wanted = broker.share_groups.partitions_of(group_id)
        if isinstance(wanted, ErrorCode):
            return rows
        for key, answer in (await broker.share_groups.summarize(group_id, wanted)).items():
            await breaths.after(1)
            topic, state = broker.topics.by_id(key.topic_id), answer.state
            if topic is None or answer.error is not ErrorCode.NONE:
                continue
            row = self._row(topic.name, key.partition, state.start_offset)
            if state.delivery_complete_count != _UNKNOWN_COUNT:
                row.complete = state.delivery_complete_count
            if row.lag is not None:
                row.lag = max(row.lag - row.complete, 0)
            rows.append(row)
        return rows

    def _row(self, topic: str, partition: int, offset: int) -> Reading:
        log = self._log(topic, partition)
        row = Reading(topic, partition, None if offset < 0 else offset, None, None)
        if log is not None:
            row.end_offset = log.last_stable_offset
            if offset >= 0:
                row.lag = lag(log, offset)
        return row

    def _log(self, topic: str, partition: int) -> Log | None:
        found = self._broker.topics.get(topic)
        if found is None or partition >= len(found.partitions):
            return None
        log = found.partitions[partition]
        return log if isinstance(log, Log) else None

    def _members_of(self, group: ListedGroup) -> Json:
        return {"members": len(self._members(group)[0])}

    def _members(self, group: ListedGroup) -> tuple[list[Json], Mapping[Partition, str]]:
        """Return a group's members, and the owner of each assigned partition."""
        held: list[tuple[Json, Iterable[Partition]]]
        if group.group_type == "classic":
            described = self._broker.groups.describe(group.group_id, api_version=_DESCRIBE_VERSION)
            held = [
                (
                    _member(one.member_id, one.group_instance_id, one.client_id, one.client_host),
                    _assigned(one.member_assignment),
                )
                for one in described.members
            ]
        elif group.group_type == "streams":
            held = list(_streams_members(self._broker.streams_groups.describe(group.group_id)))
        else:
            describe = (
                self._broker.share_groups.describe
                if group.group_type == "share"
                else self._broker.groups.describe_consumers
            )
            held = [
                (
                    _member(
                        one.member_id,
                        getattr(one, "instance_id", None),
                        one.client_id,
                        one.client_host,
                    ),
                    [
                        (topic.topic_name, number)
                        for topic in one.assignment.topic_partitions
                        for number in topic.partitions
                    ],
                )
                for one in describe(group.group_id).members
            ]
        owners: dict[Partition, str] = {}
        members = []
        for member, partitions in held:
            names = list(partitions)
            owners.update(dict.fromkeys(names, str(member["client_id"])))
            members.append({**member, "partitions": len(names)})
        return members, owners


class _Breaths:
    """Lets the event loop do other work in between, while one request is served."""

    def __init__(self) -> None:
        self._count = 0

    async def after(self, count: int) -> None:
        """Count rows that were built; yield to the event loop after a number of them."""
        self._count += count
        if self._count >= _ROWS_AT_ONCE:
            self._count = 0
            await asyncio.sleep(0)


def _head(group: ListedGroup) -> Json:
    return {"group": group.group_id, "type": group.group_type, "state": group.group_state}


def _lag(rows: Sequence[Reading]) -> Json:
    known = [row.lag for row in rows if row.lag is not None]
    return {"partitions": len(rows), "lag": sum(known) if known else None}


def _member(member_id: str, instance_id: str | None, client_id: str, host: str) -> Json:
    return {
        "member_id": member_id,
        "instance_id": instance_id,
        "client_id": client_id,
        "host": host.removeprefix("/"),
    }


def _streams_members(
    group: streams_group_describe.DescribedGroup,
) -> Iterator[tuple[Json, list[Partition]]]:
    """Iterate over a streams group's members, each with the partitions that its tasks read."""
    subtopologies = (group.topology.subtopologies if group.topology else None) or []
    topics = {
        one.subtopology_id: [
            *one.source_topics,
            *(topic.name for topic in one.repartition_source_topics),
        ]
        for one in subtopologies
    }
    for member in group.members:
        shown = _member(member.member_id, member.instance_id, member.client_id, member.client_host)
        yield (
            shown,
            [
                (topic, number)
                for tasks in member.assignment.active_tasks
                for topic in topics.get(tasks.subtopology_id, ())
                for number in tasks.partitions
            ],
        )


def _assigned(assignment: bytes) -> Iterable[Partition]:
    """Return the partitions of a classic group's consumer; none for other protocol types."""
    try:
        assigned = read_assignment(bytes(assignment)).assigned_partitions
    except ProtocolError:
        return []
    return [(one.topic, number) for one in assigned for number in one.partitions]
