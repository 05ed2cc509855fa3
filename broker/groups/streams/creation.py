"""Creates the internal topics that streams groups miss, in the background.

A heartbeat asks for them again and again until they exist. A topic that could not be created is
not tried again for a while, and heartbeats report the error until then.

Kafka's source: AutoTopicCreationManager.createStreamsInternalTopics, ExpiringErrorCache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.broker.coordination.seams import WallClock
from odradek.broker.errors import Explained, Refusal, as_value, message_of
from odradek.broker.loop.tasks import start_task
from odradek.broker.topics.plans import NewTopic, TopicPlan, check_request

if TYPE_CHECKING:
    from odradek.broker.groups.streams.configured import InternalTopic

Create = Callable[[Sequence[NewTopic]], Awaitable[Sequence[TopicPlan | Explained]]]

_ERRORS_MAX = 1_000
_DEFAULT = -1


class InternalTopics:
    """Owns the topics that are being created, and the errors of those that were not."""

    def __init__(self, create: Create, clock: WallClock) -> None:
        self._create, self._clock = create, clock
        self._begun: set[str] = set()
        # By topic, the error and the time until which it counts; the oldest error comes first.
        self._errors: dict[str, tuple[str, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Cancel the tasks that create topics."""
        for task in self._tasks:
            task.cancel()

    def begin(self, topics: Mapping[str, InternalTopic], retry_ms: int) -> None:
        """Begin to create topics, except those that are under way or have failed lately."""
        now_ms = self._clock.now_ms()
        wanted = [
            one
            for name, one in topics.items()
            if name not in self._begun and self._error(name, now_ms) is None
        ]
        if not wanted:
            return
        self._begun.update(one.name for one in wanted)
        task = start_task("create internal topics", self._create_all(wanted, retry_ms))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def errors(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the errors of topics that could not be created lately."""
        now_ms = self._clock.now_ms()
        found = ((name, self._error(name, now_ms)) for name in names)
        return {name: error for name, error in found if error is not None}

    async def _create_all(self, wanted: Sequence[InternalTopic], retry_ms: int) -> None:
        new = [_new_topic(one) for one in wanted]
        outcomes: Sequence[TopicPlan | Explained]
        try:
            check_request(new, 1)
            outcomes = await self._create(new)
        except Refusal as refusal:
            outcomes = [as_value(refusal)] * len(wanted)
        finally:
            self._begun.difference_update(one.name for one in wanted)
        until_ms = self._clock.now_ms() + retry_ms
        for one, outcome in zip(wanted, outcomes, strict=True):
            if not isinstance(outcome, TopicPlan):
                self._errors.pop(one.name, None)
                self._errors[one.name] = message_of(outcome), until_ms
        while len(self._errors) > _ERRORS_MAX:
            del self._errors[next(iter(self._errors))]

    def _error(self, name: str, now_ms: int) -> str | None:
        error, until_ms = self._errors.get(name, (None, 0))
        return error if until_ms > now_ms else None


def _new_topic(topic: InternalTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.partition_count,
        topic.replication_factor or _DEFAULT,
        [],
        dict(topic.settings),
        [],
    )
