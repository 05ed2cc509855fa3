"""Actions on groups: move and delete their committed offsets, and delete them.

    POST /api/groups/reset  {"group", "topic", "partitions": [], "to": POSITION}
    POST /api/groups/forget {"group", "topic"}
    POST /api/groups/delete {"group"}

A position is one of the texts "beginning", "end", "42" (an offset) and "@1795341600000" (a time in
milliseconds). Share groups commit no offsets; their start offsets are moved alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.topics.topic import Topic
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, ConsoleServices, require
from odradek.broker.web.console.body import Body
from odradek.broker.web.console.coordinators import Coordinator
from odradek.broker.web.console.ends import find_ends, find_offsets
from odradek.broker.web.console.group_offsets import (
    CommittedOffsets,
    GroupOffsets,
    ShareOffsets,
)
from odradek.broker.web.console.plan import Action, Plan
from odradek.broker.web.console.words import count_words
from odradek.broker.web.requests import Problem, require_partition
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from odradek.protocol.pacing import paced

_FORMS = "beginning, end, an offset (42), or a time (@MILLISECONDS)"
_WITHOUT_MEMBERS = "Empty"


def make(broker: ConsoleServices, asker: Asker) -> Sequence[Action]:
    """Return the actions on groups."""
    plans = GroupActions(asker)
    return (
        Action("reset", ("group", "topic", "partitions", "to"), plans.reset),
        Action("forget", ("group", "topic"), plans.forget),
        Action("delete", ("group",), plans.delete),
    )


class GroupActions:
    """Plans actions on groups."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def reset(self, actor: Actor, body: Body) -> Plan:
        """Move the committed offsets of a group in a topic."""
        group, to = body.text("group"), body.text("to")
        topic = self._asker.topic(body.text("topic"))
        numbers = sorted(set(body.numbers("partitions"))) or range(len(topic.partitions))
        require_partition(topic, numbers[-1])
        self._asker.require_right(actor, AclOperation.READ, ResourceKind.GROUP, group)
        self._asker.require_right(actor, AclOperation.READ, ResourceKind.TOPIC, topic.name)
        offsets = await self._offsets(actor, group)
        before = await offsets.of(topic)
        after = await self._places(actor, topic, numbers, to)
        rows = [
            {"topic": topic.name, "partition": one, "before": before.get(one), "after": after[one]}
            for one in numbers
        ]

        async def carry_out() -> Sequence[str]:
            await offsets.move(topic, after)
            moved = count_words(len(after), "partition")
            return [f"The offsets of group {group} were moved in {moved} of {topic.name}."]

        will = [f"Move the offsets of group {group} in topic {topic.name} to {to}."]
        return Plan(will, carry_out, rows=rows)

    async def forget(self, actor: Actor, body: Body) -> Plan:
        """Delete the offsets of a group in a topic."""
        group, topic = body.text("group"), self._asker.topic(body.text("topic"))
        self._asker.require_right(actor, AclOperation.DELETE, ResourceKind.GROUP, group)
        self._asker.require_right(actor, AclOperation.READ, ResourceKind.TOPIC, topic.name)
        offsets = await self._offsets(actor, group)
        before = await offsets.of(topic)
        if not before:
            raise Problem(404, f"group {group} has no offsets in topic {topic.name}")
        rows = [
            {"topic": topic.name, "partition": one, "before": offset, "after": None}
            for one, offset in sorted(before.items())
        ]

        async def carry_out() -> Sequence[str]:
            await offsets.forget(topic, list(before))
            return [f"The offsets of group {group} in topic {topic.name} were deleted."]

        will = [f"Delete the offsets of group {group} in topic {topic.name}."]
        return Plan(will, carry_out, rows=rows)

    async def delete(self, actor: Actor, body: Body) -> Plan:
        """Delete a group without members."""
        group = body.text("group")
        self._asker.require_right(actor, AclOperation.DELETE, ResourceKind.GROUP, group)
        coordinator = Coordinator(self._asker, actor, group)
        found = await self._find(coordinator)
        if found is None:
            raise Problem(404, f"there is no group {group}")
        if found.group_state != _WITHOUT_MEMBERS:
            raise Problem(
                409, f"group {group} has members ({found.group_state}): stop its consumers first"
            )

        async def carry_out() -> Sequence[str]:
            request = DeleteGroupsRequest(groups_names=[group])
            answer = await coordinator.ask(request, DeleteGroupsResponse)
            require(answer.results[0].error_code)
            return [f"Group {group} was deleted."]

        return Plan([f"Delete group {group} with its committed offsets."], carry_out)

    async def _find(self, coordinator: Coordinator) -> ListedGroup | None:
        """Return a group as its coordinator lists it."""
        request = ListGroupsRequest(states_filter=[], types_filter=[])
        answer = await coordinator.ask(request, ListGroupsResponse)
        require(answer.error_code)
        found = (one for one in paced(answer.groups) if one.group_id == coordinator.key)
        return next(found, None)

    async def _offsets(self, actor: Actor, group: str) -> GroupOffsets:
        coordinator = Coordinator(self._asker, actor, group)
        found = await self._find(coordinator)
        if found is not None and found.group_type == "share":
            return ShareOffsets(coordinator)
        return CommittedOffsets(coordinator)

    async def _places(
        self, actor: Actor, topic: Topic, numbers: Sequence[int], to: str
    ) -> Mapping[int, int]:
        """Return the offset of a position by partition; it lies between the partition's ends."""
        ends = await find_ends(self._asker, actor, topic, numbers)
        if to == "beginning":
            return {one: start for one, (start, _) in ends.items()}
        if to == "end":
            return {one: end for one, (_, end) in ends.items()}
        if re.fullmatch(r"\d{1,18}", to):
            return {one: min(max(int(to), start), end) for one, (start, end) in ends.items()}
        if not re.fullmatch(r"@\d{1,18}", to):
            raise Problem(400, f"to={to!r} is none of: {_FORMS}")
        found = await find_offsets(self._asker, actor, topic, numbers, int(to[1:]))
        return {one: ends[one][1] if at < 0 else at for one, at in found.items()}
