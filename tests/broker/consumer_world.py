"""A shard with groups of the newer protocols and all that is around it: topics, a log, time.

A batch is in the log as soon as it is asked for, unless the test lets the broker crash with it:
before the log has it, or after, but before anybody has been answered.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from odradek.broker.coordination.effects import (
    Act,
    Caller,
    CancelTimer,
    Describable,
    Effect,
    Persist,
    Reload,
    Reply,
    StartTimer,
    Timer,
)
from odradek.broker.groups.config import ConsumerSettings, GroupConfig
from odradek.broker.groups.consumer.effects import MatchExpressions
from odradek.broker.groups.consumer.expressions import match_all
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.records import KeyValue, decode_record, encode_record
from odradek.broker.groups.registry import DEFAULT_CONFIGS, OwnConfigs
from odradek.broker.groups.shard import Shard
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.broker.group_fakes import FakeTopics

GROUP = "g"
# Long enough for what is to happen at once.
_SHORT_MS = 10
AT_ONCE = ConsumerSettings(assignment_interval_ms=0)


class Crash(enum.Enum):
    """When the broker crashes, if it does."""

    BEFORE_LOG = "before the log has the records"
    AFTER_LOG = "after the log has the records"


class Crashed(Exception):
    """The broker is down; nobody has been answered."""


@dataclass
class ConsumerWorld:
    """Owns the shard, and everything that it is told."""

    config: GroupConfig = field(default_factory=lambda: GroupConfig(consumer_defaults=AT_ONCE))
    topics: FakeTopics = field(default_factory=FakeTopics)
    now_ms: int = 1_700_000_000_000
    log: list[KeyValue] = field(default_factory=list)
    timers: dict[Timer, int] = field(default_factory=dict)
    crash: Crash | None = None
    client_id: str = "a-client"
    client_host: str = "/127.0.0.1"
    fresh_id: str = "fresh"
    describable: Describable | None = None
    own: OwnConfigs = DEFAULT_CONFIGS
    # Topics that have been created, so that each has an id of its own.
    topic_count: int = 0

    def __post_init__(self) -> None:
        self.shard = Shard(0, self.config, self.topics, self.own)
        self.replies: dict[object, object] = {}

    def ask(self, operation: str, request: Any, version: int = 1) -> Any:
        """Have the shard carry out a request; return its answer, None while it stays parked."""
        token = object()
        caller = Caller(
            token, version, self.client_id, self.client_host, self.fresh_id, self.describable
        )
        act = attrgetter(operation)(self.shard)
        self.perform(act(request, caller, self.now_ms))
        if token not in self.replies:
            self.pass_time(_SHORT_MS)
        return self.replies.get(token)

    def heartbeat(
        self, member_id: str, epoch: int, *, version: int = 1, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a ConsumerGroupHeartbeat."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        answer: ConsumerGroupHeartbeatResponse = self.ask("consumer_heartbeat", request, version)
        return answer

    def group(self) -> ConsumerGroup:
        """Return the group, which is there."""
        group = self.shard.consumers.get(GROUP)
        assert group is not None
        return group

    def perform(self, effects: Iterable[Effect]) -> None:
        """Carry effects out."""
        queue = list(effects)
        while queue:
            effect = queue.pop(0)
            match effect:
                case Reply():
                    self.replies[effect.token] = effect.response
                case StartTimer():
                    self.timers[effect.timer] = self.now_ms + max(effect.delay_ms, 1)
                case CancelTimer():
                    self.timers.pop(effect.timer, None)
                case Persist():
                    queue += self._persist(effect)
                case Act(MatchExpressions() as action):
                    found = match_all(action.expressions, action.topics)
                    queue += self.shard.expressions_matched(action, found, self.now_ms)
                case Reload():
                    self.restart()

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass, and timers fire."""
        end_ms = self.now_ms + duration_ms
        while due := [timer for timer, at_ms in self.timers.items() if at_ms <= end_ms]:
            timer = min(due, key=self.timers.__getitem__)
            self.now_ms = max(self.now_ms, self.timers.pop(timer))
            self.perform(self.shard.timer_fired(timer, self.now_ms))
        self.now_ms = end_ms

    def restart(self) -> None:
        """Start again with what the log has."""
        self.shard = Shard(0, self.config, self.topics, self.own)
        self.timers = {}
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            self.shard.replay(record)
        self.perform(self.shard.loaded(self.now_ms))

    def grow(self, name: str, count: int, topic_id: bytes | None = None) -> None:
        """Create a topic, or give it more partitions."""
        is_new = name not in self.topics.by_name
        if is_new:
            self.topic_count += 1
        fresh_id = f"{name[:10]}{self.topic_count}".encode().ljust(16, b"_")
        present = self.topics.by_name.get(name, (topic_id or fresh_id, 0))
        self.topics.by_name[name] = (present[0], count)
        self.shard.consumers.topic_changed(name, is_new=is_new)
        self.shard.shares.topic_changed(name)
        self.shard.streams.topic_changed(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        topic_id, _ = self.topics.by_name.pop(name)
        self.shard.consumers.topic_changed(name, is_new=False)
        self.shard.shares.topic_changed(name)
        self.shard.streams.topic_changed(name)
        self.perform(self.shard.offsets.topic_deleted(name, topic_id))
        self.perform(self.shard.shares.topic_deleted(topic_id, self.now_ms))

    def reconfigure(self, **changes: Any) -> None:
        """Go by other options."""
        self.config = self.shard.config = replace(self.config, **changes)

    def _persist(self, effect: Persist) -> list[Effect]:
        records = [encode_record(record) for record in effect.records]  # type: ignore[arg-type]
        crash, self.crash = self.crash, None
        if crash is not Crash.BEFORE_LOG:
            self.log += records
        if crash is not None:
            self.restart()
            raise Crashed
        return self.shard.stored(effect.ticket, ErrorCode.NONE, self.now_ms)  # type: ignore[arg-type]
