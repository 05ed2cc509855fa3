"""Common parts of the requests for share groups' state (APIs 83 to 87).

Each request names partitions of one group by topic, and each partition has its own answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from odradek.broker.context import RequestContext
from odradek.broker.coordination.runtime import Answer
from odradek.broker.orders.maps import computed_ids, put_numbers
from odradek.broker.security.authorization import AclOperation
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state_coordinator import all_of
from odradek.broker.shares.state_shard import StateAnswer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced

_PARTITIONS_PER_SLICE = 500

P = TypeVar("P", bound="_Partition", contravariant=True)
R = TypeVar("R")


class _Partition(Protocol):
    @property
    def partition(self) -> int: ...


class _Topic(Protocol):
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[Any]: ...


class _Request(Protocol):
    @property
    def group_id(self) -> str: ...
    @property
    def topics(self) -> Sequence[Any]: ...


def is_empty(request: _Request) -> bool:
    """Return whether a request names no group, no topic, or a topic without partitions."""
    topics: Iterable[_Topic] = request.topics
    return not (request.group_id and request.topics and all(one.partitions for one in topics))


async def ask_each(
    context: RequestContext,
    request: _Request,
    ask: Callable[[SharePartitionKey, Any], Answer[StateAnswer]],
    answer_of: Callable[[int, StateAnswer], R],
    *,
    looks_once: bool = False,
) -> dict[bytes, list[R]]:
    """Call `ask` for each partition of a request; return the results of `answer_of`, by topic.

    `looks_once` is whether Kafka looks up a topic in its map once for all its partitions.
    """
    named = {
        SharePartitionKey(request.group_id, topic.topic_id, one.partition): one
        for topic in paced(request.topics)
        for one in paced(topic.partitions)
    }
    if not context.may_to_cluster(AclOperation.CLUSTER_ACTION):
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        answers: Sequence[StateAnswer] = [StateAnswer(denied, denied.sentence)] * len(named)
        in_turn = _by_topic(named, answers, answer_of)
        return {topic_id: list(found.values()) for topic_id, found in paced(in_turn.items())}
    # All requests begin before the first is awaited: one flush serves them all.
    begun = []
    for number, (key, one) in enumerate(paced(named.items()), 1):
        begun.append(ask(key, one))
        if number % _PARTITIONS_PER_SLICE == 0:
            await asyncio.sleep(0)  # A partition is four bytes of a request, and takes 20 us.
    results = _by_topic(named, await all_of(begun), answer_of)
    asked = (
        topic.topic_id
        for topic in paced(request.topics)
        for _ in paced(topic.partitions[:1] if looks_once else topic.partitions)
    )
    return {
        topic_id: [results[topic_id][one] for one in paced(put_numbers(results[topic_id]))]
        for topic_id in paced(computed_ids(asked))
    }


def _by_topic(
    named: Iterable[SharePartitionKey],
    answers: Iterable[StateAnswer],
    result_of: Callable[[int, StateAnswer], R],
) -> dict[bytes, dict[int, R]]:
    results: dict[bytes, dict[int, R]] = {}
    for key, answer in paced(zip(named, answers, strict=True)):
        results.setdefault(key.topic_id, {})[key.partition] = result_of(key.partition, answer)
    return results
