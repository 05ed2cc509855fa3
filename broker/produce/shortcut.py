"""The short way of a small Produce request whose shape came before: checked, appended, answered.

It does the same as apis/produce.py for one batch of no transaction, but without the objects of a
request and a response, which takes half of the time. It takes only requests for which nothing
special is set up; all others go the long way, as does a batch that takes long to check.
"""

from __future__ import annotations

import struct
from asyncio import Future
from collections.abc import Callable
from typing import Protocol

from odradek.broker.clock import Clock
from odradek.broker.counters.topics import count_refusal
from odradek.broker.durability.group_commit import GroupCommit
from odradek.broker.produce.appending import must_be_durable
from odradek.broker.produce.outcomes import (
    RefusalServices,
    accepted,
    explain,
    fail_unflushed,
)
from odradek.broker.produce.shapes import KEY_AT, Shape, end_of, shape_of
from odradek.broker.security.composition import Security
from odradek.broker.topics.registry import Topics
from odradek.broker.topics.topic import Topic
from odradek.broker.transactions.admission import TOPIC_IDS_SINCE
from odradek.config.broker import BrokerConfig
from odradek.dataclass import dataclass
from odradek.protocol.batches import CONTROL_BIT, LOW_ATTRIBUTES_POSITION, TRANSACTIONAL_BIT
from odradek.protocol.encoding import Chunk
from odradek.protocol.frames import PRODUCE_KEY, RequestHeader
from odradek.protocol.messages.produce import ProduceRequest
from odradek.storage.allowance import BriefAllowance, TooLaborious
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

# The key and the version as one number, which is the version: the key of Produce is 0.
_HEAD = struct.Struct(">ii")
_SPECIAL = CONTROL_BIT | TRANSACTIONAL_BIT
# Larger frames are served in slices, so that other clients get their turn.
_FRAME_BYTES_MAX = 128 * 1024
# About 1 kB each.
_SHAPES_MAX = 4_096


class ShortcutServices(RefusalServices, Protocol):
    """The parts of a broker that the short way takes."""

    clock: Clock
    topics: Topics
    group_commit: GroupCommit
    security: Security

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""


@dataclass(slots=True, eq=False)
class Unflushed:
    """A request whose batch is in the log, and whose answer waits for the disk."""

    flushed: Future[None]
    # Returns the answer once that is done. Raises its error if it is not a StorageError.
    answer: Callable[[], list[Chunk]]


class ProduceShortcut:
    """Serves Produce requests of shapes that came before; the event loop owns it."""

    def __init__(self, services: ShortcutServices) -> None:
        self._services = services
        self._shapes: dict[tuple[int, bytes], Shape] = {}

    def learn(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> int:
        """Remember the shape of a request that is served; return where it ends, 0 for none."""
        end = end_of(frame, header, request) if len(frame) <= _FRAME_BYTES_MAX else 0
        if not end:
            return 0
        key = header.api_version, bytes(frame[KEY_AT:end])
        if key not in self._shapes:
            shape = shape_of(frame, header, request)
            topic = None if shape is None else self._topic(shape)
            if shape is None or topic is None or topic.is_internal:
                return 0
            if len(self._shapes) >= _SHAPES_MAX:
                del self._shapes[next(iter(self._shapes))]
            self._shapes[key] = shape
        return end

    def serve(self, frame: memoryview, end: int) -> list[Chunk] | Unflushed | None:
        """Append the batch of a request, whose shape would end there, and return the answer.

        None for a request that has to go the long way; then nothing has been done.
        """
        if not end < len(frame) <= _FRAME_BYTES_MAX:
            return None
        version, number = _HEAD.unpack_from(frame)
        shape = self._shapes.get((version, bytes(frame[KEY_AT:end])))
        records = None if shape is None else shape.records(frame, end)
        if shape is None or records is None or records[LOW_ATTRIBUTES_POSITION] & _SPECIAL:
            return None
        services = self._services
        security = services.security
        if (
            security.quotas.clients is not None
            or security.authorizer is not None
            or services.group_commit.room() is not None
        ):
            return None
        topic, index = self._topic(shape), shape.index
        if topic is None or index >= len(topic.partitions):
            return None
        log = topic.partitions[index]
        if not isinstance(log, Log):
            return None
        answer = self._append(shape, log, records, number)
        if answer is not None:
            services.metrics.count_request(PRODUCE_KEY, version)
        return answer

    def _append(
        self, shape: Shape, log: Log, records: memoryview, number: int
    ) -> list[Chunk] | Unflushed | None:
        """Append a batch; return the answer, None for a batch that takes long to check."""
        services = self._services
        now_ms = services.clock.now_ms()
        try:
            checked = log.check(records, now_ms=now_ms, allowance=BriefAllowance())
            appended = log.append_checked(checked, now_ms=now_ms)
        except TooLaborious:
            return None
        except StorageError as error:
            refused = explain(services, log, shape.index, error)
            count_refusal(services.metrics, log.topic, refused.error_code)
            return [shape.encode(number, refused)]
        offsets = appended.base_offset, appended.log_append_time_ms, log.log_start_offset
        answer: list[Chunk] = [shape.fill_in(number, *offsets)]
        if not must_be_durable(log, shape.acks, services.config):
            return answer
        flushed = services.group_commit.flush([log])

        def answer_flushed() -> list[Chunk]:
            error = flushed.exception()
            if error is None:
                return answer
            if not isinstance(error, StorageError):
                raise error
            partition = accepted(shape.index, *offsets)
            fail_unflushed(services.metrics, [(log, partition)])
            return [shape.encode(number, partition)]

        return Unflushed(flushed, answer_flushed)

    def _topic(self, shape: Shape) -> Topic | None:
        topics = self._services.topics
        if shape.version >= TOPIC_IDS_SINCE:
            return topics.by_id(shape.topic_id)
        return topics.get(shape.topic_name)
