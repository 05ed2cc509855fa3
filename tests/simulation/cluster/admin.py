"""Changes of topics, each sent to a broker that is drawn.

Each worker has topics of its own, so that it knows what may have become of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.histories.history import Outcome, TopicChange
from tests.simulation.cluster.clients import Client, Unanswered
from tests.support.requests import altering, creatable, creating

SETTING = "retention.ms"
# Larger than any virtual time of a test, so that nothing is deleted.
_SETTING_MIN = 10_000_000_000
_PAUSE_S = 0.4
_TIMEOUT_MS = 10_000
_NAMES = 2


class Admin:
    """Creates topics, changes them, deletes them, and creates others of the same names."""

    def __init__(self, client: Client) -> None:
        self.client = client
        # By name: the last change that created the topic; None while none is there for sure.
        self._topics: dict[str, TopicChange | None] = {
            f"{client.name}-{number}": None for number in range(_NAMES)
        }
        self._counts: dict[str, int] = {}
        self._value = _SETTING_MIN

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Change topics until it is over."""
        source = self.client.source
        while not is_over():
            name = source.choice(sorted(self._topics))
            created = self._topics[name]
            try:
                if created is None:
                    await self._create(name)
                else:
                    step = source.choice(
                        [self._alter, self._alter, self._enlarge, self._delete]
                    )
                    await step(created)
            except Unanswered:
                await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(_PAUSE_S * source.random())

    async def _create(self, name: str) -> None:
        change = self._note(TopicChange("create", name))
        count = self.client.source.randint(1, 3)
        asked = creating(creatable(name, count))
        (found,) = (await self.client.ask(self.client.any_broker(), asked, 7)).topics
        if not found.error_code:
            change.topic_id, change.outcome = found.topic_id.hex(), Outcome.DONE
            self._topics[name], self._counts[name] = change, count
            self._note(TopicChange("partitions", name, change.topic_id, count, Outcome.DONE))
        elif found.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            await self._adopt(name)

    async def _adopt(self, name: str) -> None:
        """Find the topic of a creation that was not answered."""
        (found,) = (await self.client.describe([name], self.client.any_broker())).topics
        if not found.error_code:
            change = self._note(TopicChange("create", name, found.topic_id.hex()))
            self._topics[name], self._counts[name] = change, len(found.partitions)
            if self._is_deleted(change.topic_id):
                self._topics[name] = None  # that broker has not heard of it yet

    def _is_deleted(self, topic_id: str) -> bool:
        return any(
            one.kind == "delete" and one.topic_id == topic_id and one.outcome is Outcome.DONE
            for one in self.client.history.topic_changes
        )

    async def _alter(self, created: TopicChange) -> None:
        self._value += 1
        change = self._note(
            TopicChange("setting", created.topic, created.topic_id, self._value)
        )
        asked = altering(created.topic, {SETTING: str(self._value)})
        answer = await self.client.ask(self.client.any_broker(), asked, 1)
        self._answered(change, answer.responses[0].error_code)

    async def _enlarge(self, created: TopicChange) -> None:
        name = created.topic
        self._counts[name] += 1
        change = self._note(
            TopicChange("partitions", name, created.topic_id, self._counts[name])
        )
        topic = CreatePartitionsTopic(name=name, count=self._counts[name], assignments=None)
        asked = CreatePartitionsRequest(
            topics=[topic], timeout_ms=_TIMEOUT_MS, validate_only=False
        )
        answer = await self.client.ask(self.client.any_broker(), asked, 3)
        self._answered(change, answer.results[0].error_code)

    async def _delete(self, created: TopicChange) -> None:
        name = created.topic
        change = self._note(TopicChange("delete", name, created.topic_id))
        self._topics[name] = None
        state = DeleteTopicState(name=None, topic_id=bytes.fromhex(created.topic_id))
        asked = DeleteTopicsRequest(topics=[state], timeout_ms=_TIMEOUT_MS)
        answer = await self.client.ask(self.client.any_broker(), asked, 6)
        self._answered(change, answer.responses[0].error_code)

    def _note(self, change: TopicChange) -> TopicChange:
        noted: TopicChange = self.client.history.add(change)
        return noted

    def _answered(self, change: TopicChange, code: int) -> None:
        if not code:
            self.client.history.end(change, Outcome.DONE)
