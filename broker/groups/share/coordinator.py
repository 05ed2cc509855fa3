"""The coordinator of share groups: carries out the requests of members and administrators.

The groups are part of the machines of __consumer_offsets (groups.py in its Shard); this module
connects them with the coordinator of the state of share-partitions.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Task
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.coordination.effects import Caller, Effect
from odradek.broker.coordination.runtime import Answer, Runtime
from odradek.broker.coordination.seams import Requester, WallClock
from odradek.broker.groups.modern.tables import in_map_order
from odradek.broker.groups.modern.topics import TopicView
from odradek.broker.groups.shard import Shard
from odradek.broker.groups.share import heartbeats, simple
from odradek.broker.groups.share.administration import Altered, Deleting
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.groups import ShareGroups
from odradek.broker.groups.share.heartbeats import HeartbeatAnswer
from odradek.broker.groups.share.partitions import in_order
from odradek.broker.orders.java import hash_set_order
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state_coordinator import all_of
from odradek.broker.shares.state_shard import StateAnswer
from odradek.broker.shares.states import Persister
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from odradek.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from odradek.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from odradek.protocol.pacing import paced

if TYPE_CHECKING:
    from odradek.broker.peers.ends import RemoteEnds

logger = logging.getLogger(__name__)

T = TypeVar("T")
Numbers = Mapping[bytes, Sequence[int]]
_UNKNOWN_OFFSET = -1


class ShareGroupCoordinator:
    """Asks the machines that own the groups; GroupCoordinator owns the runtime."""

    def __init__(
        self,
        runtime: Runtime[Shard],
        states: Persister,
        topics: TopicView,
        clock: WallClock,
        is_enabled: Callable[[], bool],
    ) -> None:
        self._runtime, self._states, self.topics = runtime, states, topics
        self._clock = clock
        self._is_enabled = is_enabled
        self._beginning: set[Task[None]] = set()
        # None where no other broker can lead partitions.
        self.remote_ends: RemoteEnds | None = None

    @property
    def is_enabled(self) -> bool:
        """Whether share groups are served."""
        return self._is_enabled()

    def close(self) -> None:
        """Cancel the tasks that begin state."""
        for task in self._beginning:
            task.cancel()

    async def heartbeat(
        self, request: ShareGroupHeartbeatRequest, requester: Requester
    ) -> ShareGroupHeartbeatResponse:
        """Carry out a heartbeat, and begin the state that partitions then need."""
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return heartbeats.refuse(shard).response
        caller = self._runtime.caller(requester)
        effects = shard.shares.heartbeat(request, caller, self._clock.now_ms())
        answer = await self._answer(request.group_id, effects, caller, HeartbeatAnswer)
        if answer.to_begin:
            beginning = self._begin(
                request.group_id,
                {topic_id: in_order(one.partitions) for topic_id, one in answer.to_begin.items()},
                answer.group_epoch,
            )
            task = asyncio.get_running_loop().create_task(beginning)
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)
        return answer.response

    def has(self, group_id: str) -> bool:
        """Return whether a share group with an id exists."""
        return self._find(group_id) is not None

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe a share group."""
        if not self.is_enabled:
            return DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
        shard = self._runtime.machine_of(group_id)
        if isinstance(shard, ErrorCode):
            return DescribedGroup(
                group_id=group_id, error_code=shard, error_message=shard.sentence
            )
        group = shard.shares.get(group_id)
        if group is None:
            return DescribedGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=shard.shares.missing(group_id),
            )
        return self._described(group)

    def partitions_of(self, group_id: str) -> Numbers | ErrorCode:
        """Return the partitions of a group with state."""
        shard = self._runtime.machine_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        group = shard.shares.get(group_id)
        if group is None or group.partitions is None:
            return {}
        noted = group.partitions.initialized
        return {topic_id: in_order(noted[topic_id].partitions) for topic_id in in_map_order(noted)}

    async def summarize(
        self, group_id: str, partitions: Numbers
    ) -> Mapping[SharePartitionKey, StateAnswer]:
        """Return the summaries of a group's state in partitions, each read at its own time."""
        begun: dict[SharePartitionKey, Answer[StateAnswer]] = {}
        for key in paced(_each_key(group_id, partitions)):
            if key not in begun:
                begun[key] = self._states.summarize(key)
        answers = await all_of(list(begun.values()))
        return dict(paced(zip(begun, answers, strict=True)))

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete all state of an empty group, then the group."""
        deleting = await self._ask(
            group_id,
            lambda shares, caller, now_ms: shares.begin_deletion(group_id, caller.token, now_ms),
            Deleting,
        )
        if isinstance(deleting, ErrorCode):
            return deleting
        if deleting.error is not ErrorCode.NONE:
            return deleting.error
        failures = await self._forget(group_id, deleting.topics)
        if failures:
            return next(iter(failures.values())).error
        return await self._ask(
            group_id,
            lambda shares, caller, now_ms: shares.remove(group_id, caller.token, now_ms),
            ErrorCode,
        )

    async def delete_offsets(
        self, group_id: str, names: Sequence[str]
    ) -> tuple[Deleting, Mapping[bytes, StateAnswer]]:
        """Delete an empty group's state in topics; return the plan, and the failures."""
        deleting = await self._ask(
            group_id,
            lambda shares, caller, now_ms: shares.begin_offset_deletion(
                group_id, names, caller.token, now_ms
            ),
            Deleting,
        )
        if isinstance(deleting, ErrorCode):
            return Deleting(deleting, deleting.sentence), {}
        failures = await self._forget(group_id, deleting.topics)
        gone = [topic_id for topic_id in deleting.topics if topic_id not in failures]
        if gone:
            error = await self._ask(
                group_id,
                lambda shares, caller, now_ms: shares.topics_forgotten(
                    group_id, gone, caller.token, now_ms
                ),
                ErrorCode,
            )
            if error is not ErrorCode.NONE:
                return Deleting(error, error.sentence), {}
        return deleting, failures

    async def alter_offsets(
        self, request: AlterShareGroupOffsetsRequest
    ) -> tuple[Altered, Mapping[tuple[bytes, int], StateAnswer]]:
        """Change the start offsets of an empty group; return the plan, and the failures."""
        group_id = request.group_id
        altered = await self._ask(
            group_id,
            lambda shares, caller, now_ms: shares.alter(request, caller.token, now_ms),
            Altered,
        )
        if isinstance(altered, ErrorCode):
            return Altered(altered, altered.sentence), {}
        keys = _keys(group_id, altered.starts)
        answers = await all_of(
            [
                self._states.initialize(
                    key, altered.group_epoch, altered.starts[key.topic_id][key.partition]
                )
                for key in paced(keys)
            ]
        )
        failures = {
            (key.topic_id, key.partition): answer
            for key, answer in zip(keys, answers, strict=True)
            if answer.error is not ErrorCode.NONE
        }
        if keys and not failures:
            numbers = {topic_id: list(starts) for topic_id, starts in altered.starts.items()}
            await self._note_begun(group_id, numbers)
        return altered, failures

    async def _begin(self, group_id: str, partitions: Numbers, group_epoch: int) -> None:
        """Begin the state of partitions, and note the success or failure."""
        keys = _keys(group_id, partitions)
        answers = await all_of(
            [self._states.initialize(key, group_epoch, _UNKNOWN_OFFSET) for key in paced(keys)]
        )
        failed = next((one for one in answers if one.error is not ErrorCode.NONE), None)
        if failed is None:
            await self._note_begun(group_id, partitions)
            return
        logger.error(
            "failed to begin state of share group=%r error=%s: %s",
            group_id, failed.error.name, failed.message,
        )  # fmt: skip
        await self._ask(
            group_id,
            lambda shares, caller, now_ms: shares.not_begun(
                group_id, partitions, caller.token, now_ms
            ),
            ErrorCode,
        )

    async def _note_begun(self, group_id: str, partitions: Numbers) -> None:
        error = await self._ask(
            group_id,
            lambda shares, caller, now_ms: shares.begun(
                group_id, partitions, caller.token, now_ms
            ),
            ErrorCode,
        )
        if error is not ErrorCode.NONE:
            logger.error("failed to note state of share group=%r error=%s", group_id, error.name)

    async def _forget(
        self, group_id: str, partitions: Numbers
    ) -> Mapping[bytes, StateAnswer]:
        """Delete the state of partitions; return the answers of topics for which that failed."""
        keys = _keys(group_id, partitions)
        answers = await all_of([self._states.delete(key) for key in paced(keys)])
        return {
            key.topic_id: answer
            for key, answer in zip(keys, answers, strict=True)
            if answer.error is not ErrorCode.NONE
        }

    async def _ask(
        self,
        group_id: str,
        decide: Callable[[ShareGroups, Caller, int], Sequence[Effect]],
        kind: type[T],
    ) -> T | ErrorCode:
        shard = self._runtime.machine_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        caller = self._runtime.caller()
        effects = decide(shard.shares, caller, self._clock.now_ms())
        return await self._answer(group_id, effects, caller, kind)

    async def _answer(
        self, group_id: str, effects: Sequence[Effect], caller: Caller, kind: type[T]
    ) -> T:
        answer: Answer[T] = self._runtime.run(group_id, effects, caller, kind)
        return await answer if isinstance(answer, Awaitable) else answer

    def _find(self, group_id: str) -> ShareGroup | None:
        shard = self._runtime.machine_of(group_id)
        return None if isinstance(shard, ErrorCode) else shard.shares.get(group_id)

    def _described(self, group: ShareGroup) -> DescribedGroup:
        return DescribedGroup(
            group_id=group.group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.targets.epoch,
            assignor_name=simple.NAME,
            members=[
                Member(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=hash_set_order(member.topics),
                    assignment=Assignment(
                        topic_partitions=[
                            TopicPartitions(
                                topic_id=topic_id, topic_name=name, partitions=list(numbers)
                            )
                            for topic_id, numbers in member.assigned.items()
                            if (name := self.topics.name_of(topic_id)) is not None
                        ]
                    ),
                )
                for member in map(group.members.__getitem__, group.members.in_order())
            ],
        )


def _keys(group_id: str, partitions: Mapping[bytes, Iterable[int]]) -> list[SharePartitionKey]:
    return list(_each_key(group_id, partitions))


def _each_key(
    group_id: str, partitions: Mapping[bytes, Iterable[int]]
) -> Iterator[SharePartitionKey]:
    for topic_id, numbers in partitions.items():
        for number in numbers:
            yield SharePartitionKey(group_id, topic_id, number)
