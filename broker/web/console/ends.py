"""The offsets of places in partitions: their ends, and the first record of a time.

    GET /api/offsets?topic=T[&at_ms=M]

The answer has the start and the end of each partition, and the offset of its first record of the
time or later, null where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.topics.topic import Topic
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.console.asking import Asker, require
from odradek.broker.web.requests import Parameters
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.pacing import paced

LATEST, EARLIEST = -1, -2
_CONSUMER = -1
_NONE = -1
_TIMEOUT_MS = 30_000


async def show(asker: Asker, actor: Actor, parameters: Parameters) -> Mapping[str, object]:
    """Return the offsets of a topic's partitions, for an answer. Raises Problem."""
    topic, at_ms = asker.topic(parameters.text("topic") or ""), parameters.number("at_ms", 15)
    asker.require_right(actor, AclOperation.DESCRIBE, ResourceKind.TOPIC, topic.name)
    numbers = range(len(topic.partitions))
    ends = await find_ends(asker, actor, topic, numbers)
    found: Mapping[int, int] = {}
    if at_ms is not None:
        found = await find_offsets(asker, actor, topic, numbers, at_ms)
    return {
        "offsets": [
            {"partition": one, "start": start, "end": end, "at": known(found.get(one, _NONE))}
            for one, (start, end) in paced(sorted(ends.items()))
        ]
    }


def known(offset: int) -> int | None:
    """Return an offset, None for the one that stands for none."""
    return None if offset == _NONE else offset


async def find_offsets(
    asker: Asker, actor: Actor, topic: Topic, numbers: Iterable[int], timestamp: int
) -> Mapping[int, int]:
    """Return the offset of a time, or of a place, by partition; -1 after the last record."""
    found = dict[int, int]()
    for leader, owned in asker.leaders(topic, numbers).items():
        partitions = [
            ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in owned
        ]
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=0,
            topics=[ListOffsetsTopic(name=topic.name, partitions=partitions)],
            timeout_ms=_TIMEOUT_MS,
        )
        answer = await asker.ask(actor, request, ListOffsetsResponse, leader)
        for one in answer.topics[0].partitions:
            require(one.error_code, None, f"{topic.name}-{one.partition_index}")
            found[one.partition_index] = one.offset
    return found


async def find_ends(
    asker: Asker, actor: Actor, topic: Topic, numbers: Iterable[int]
) -> Mapping[int, tuple[int, int]]:
    """Return the first offset and the end of partitions."""
    wanted = list(numbers)
    starts = await find_offsets(asker, actor, topic, wanted, EARLIEST)
    ends = await find_offsets(asker, actor, topic, wanted, LATEST)
    return {one: (starts[one], ends[one]) for one in wanted}
