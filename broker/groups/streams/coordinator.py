"""The coordinator of streams groups: carries out the heartbeats of members, and describes groups.

The groups are part of the machines of __consumer_offsets (groups.py in its Shard). Most brokers
have none: the modules of heartbeats and descriptions are imported with the first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from odradek.broker.coordination.runtime import Answer, Runtime
from odradek.broker.coordination.seams import Requester, WallClock
from odradek.broker.errors import Refusal, message_of
from odradek.broker.groups.modern.topics import TopicView
from odradek.broker.groups.shard import Shard
from odradek.broker.groups.streams.creation import InternalTopics
from odradek.broker.groups.streams.turn import StreamsGroupConfig
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.groups.streams.heartbeats import HeartbeatAnswer
    from odradek.protocol.messages.streams_group_describe import DescribedGroup
    from odradek.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


class StreamsGroupCoordinator:
    """Asks the machines that own the groups; GroupCoordinator owns the runtime."""

    def __init__(
        self,
        runtime: Runtime[Shard],
        topics: TopicView,
        internal_topics: InternalTopics,
        clock: WallClock,
        is_enabled: Callable[[], bool],
        config_of: Callable[[str], StreamsGroupConfig],
    ) -> None:
        self._runtime, self._topics, self._clock = runtime, topics, clock
        self.internal_topics = internal_topics
        self._is_enabled = is_enabled
        self.config_of = config_of

    @property
    def is_enabled(self) -> bool:
        """Whether streams groups are served."""
        return self._is_enabled()

    def close(self) -> None:
        """Cancel the tasks that create internal topics."""
        self.internal_topics.close()

    async def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, requester: Requester
    ) -> HeartbeatAnswer:
        """Carry out a heartbeat."""
        from odradek.broker.groups.streams import checks, heartbeats

        try:
            checks.check_heartbeat(request, self._topics)
        except Refusal as error:
            return heartbeats.refuse(error.code, message_of(error))
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return heartbeats.refuse(shard)
        caller = self._runtime.caller(requester)
        effects = shard.streams.heartbeat(request, caller, self._clock.now_ms())
        answer: Answer[HeartbeatAnswer] = self._runtime.run(
            request.group_id, effects, caller, heartbeats.HeartbeatAnswer
        )
        return await answer if isinstance(answer, Awaitable) else answer

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe a streams group."""
        from odradek.broker.groups.streams import descriptions

        if not self.is_enabled:
            return descriptions.refused(group_id, ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            return descriptions.refused(group_id, ErrorCode.INVALID_GROUP_ID)
        shard = self._runtime.machine_of(group_id)
        if isinstance(shard, ErrorCode):
            return descriptions.refused(group_id, shard)
        group = shard.streams.get(group_id)
        if group is None:
            message = shard.streams.missing(group_id)
            return descriptions.refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        return descriptions.described(group)
