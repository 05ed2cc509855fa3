"""Members of a group that take each other's place: a former one must not commit offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.histories.history import OffsetCommit, Outcome, Place
from tests.simulation.cluster.clients import GROUP, Client, Unanswered
from tests.simulation.cluster.consumers import find_committed
from tests.support.requests import committing

_JOIN_VERSION, _SYNC_VERSION, _COMMIT_VERSION = 9, 5, 8
_TYPE, _PROTOCOL = "consumer", "range"
# Longer than a run: nobody sends heartbeats.
_SESSION_MS = 300_000
_PAUSE_S = 0.3
_REPLACED_SHARE = 0.3


class Member:
    """A static member, which begins again now and then; its former life goes on to commit."""

    def __init__(self, client: Client, place: Place) -> None:
        self.client, self._place = client, place
        self.group, self._instance = f"group-of-{client.name}", client.name
        # The generation and the member id; None before it has joined.
        self._present: tuple[int, str] | None = None
        self._former: tuple[int, str] | None = None
        self._offset = 0

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Commit offsets until it is over."""
        source = self.client.source
        while not is_over():
            try:
                if self._present is None or source.random() < _REPLACED_SHARE:
                    await self._join()
                elif self._former is not None and source.random() < 0.5:
                    await self._commit_as_former(self._former)
                else:
                    await self._commit(self._present)
            except Unanswered:
                pass
            await find_committed(self.client, self.group, self._place)
            await asyncio.sleep(_PAUSE_S * source.random())

    async def _join(self) -> None:
        protocol = JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")
        joined = await self._ask(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_SESSION_MS,
                member_id="",
                group_instance_id=self._instance,
                protocol_type=_TYPE,
                protocols=[protocol],
            ),
            _JOIN_VERSION,
        )
        if joined.error_code:
            await self.client.back_off()
            return
        if self._present is not None and self._present[1] != joined.member_id:
            self._former = self._present
        self._present = joined.generation_id, joined.member_id
        given = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
        await self._ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=self._instance,
                protocol_type=_TYPE,
                protocol_name=_PROTOCOL,
                assignments=[given],
            ),
            _SYNC_VERSION,
        )

    async def _commit(self, member: tuple[int, str]) -> None:
        commit = self._begin(Outcome.UNKNOWN)
        if await self._send(commit, member):
            await self.client.back_off()
            self._present = None
        else:
            self.client.history.end(commit, Outcome.DONE)

    async def _commit_as_former(self, member: tuple[int, str]) -> None:
        """Commit as the former member, which never comes into force."""
        commit = self._begin(Outcome.UNDONE)
        code = await self._send(commit, member)
        if not code:
            self.client.history.troubles.append(
                f"fenced: {self.group}: member {member[1]} has committed {commit.offset}"
            )

    def _begin(self, outcome: Outcome) -> OffsetCommit:
        self._offset += 1
        made: OffsetCommit = self.client.history.add(
            OffsetCommit(self.group, self._place, self._offset, outcome=outcome)
        )
        return made

    async def _send(self, commit: OffsetCommit, member: tuple[int, str]) -> int:
        topic, number = self._place
        generation, member_id = member
        asked = committing(
            self.group,
            {topic: {number: commit.offset}},
            member_id=member_id,
            generation=generation,
        )
        asked.group_instance_id = self._instance
        answer = await self._ask(asked, _COMMIT_VERSION)
        return int(answer.topics[0].partitions[0].error_code)

    async def _ask(self, request: Any, version: int) -> Any:
        return await self.client.ask_coordinator(GROUP, self.group, request, version)
