"""AlterShareGroupOffsets and DeleteShareGroupOffsets: what is left out is not missed.

A coordinator decides in one piece. So handlers leave out what does not matter, however much of it
a request has, and must answer as if the coordinator had been asked about all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.apis import alter_share_group_offsets, delete_share_group_offsets
from odradek.broker.groups.modern.topics import TopicHashes
from odradek.broker.groups.share import administration
from odradek.broker.groups.share.administration import Altered, Deleting
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.partitions import Begun, StatePartitions
from odradek.broker.groups.share.turn import ShareGroupConfig, ShareTurn
from odradek.broker.orders.maps import computed_ids, put_ids
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)

COUNTS = {"one": 1, "three": 3, "hidden": 2}
IDS = {name: name.encode().ljust(16, b".") for name in COUNTS}
NAMES = st.sampled_from([*COUNTS, "gone", "made up"])
BEGUN = st.lists(st.sampled_from(["one", "three"]), unique=True)


@dataclass(frozen=True)
class Topics:
    """Some topics, as handlers and as machines look for them."""

    counts: Mapping[str, int]

    def get(self, name: str) -> Any:
        if name not in self.counts:
            return None
        return SimpleNamespace(name=name, topic_id=IDS[name], partitions=range(self.counts[name]))

    def by_id(self, topic_id: bytes) -> Any:
        return next((self.get(name) for name in self.counts if IDS[name] == topic_id), None)

    def id_of(self, name: str) -> bytes | None:
        return IDS[name] if name in self.counts else None

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self.by_id(topic_id)
        return None if topic is None else str(topic.name)

    def names(self) -> Iterable[str]:
        return self.counts

    def version(self) -> int:
        return 0

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        return ()


TOPICS: Any = Topics(COUNTS)


@dataclass
class Decides:
    """The coordinator of one share group: decides, and stores nothing."""

    noted: StatePartitions | None
    decided: int = 0  # of how many names or partitions

    def turn(self) -> ShareTurn:
        group = ShareGroup("g", partitions=self.noted)
        return ShareTurn(group, ShareGroupConfig(), 0, TOPICS, TopicHashes(TOPICS))

    async def delete_offsets(
        self, group_id: str, names: Sequence[str]
    ) -> tuple[Deleting, Mapping[bytes, Any]]:
        self.decided = len(names)
        return administration.begin_offset_deletion(self.turn(), names), {}

    async def alter_offsets(
        self, request: AlterShareGroupOffsetsRequest
    ) -> tuple[Altered, Mapping[Any, Any]]:
        self.decided = sum(max(len(topic.partitions), 1) for topic in request.topics)
        problem = administration.alter_problem(request, TOPICS)
        if problem is not None:
            return problem, {}
        return administration.alter(self.turn(), request.topics), {}


def services(groups: Decides) -> Any:
    """Return the parts of a broker that these requests take."""
    return SimpleNamespace(
        share_groups=groups, topics=TOPICS, shares=SimpleNamespace(are_enabled=True)
    )


def context() -> Any:
    """Return the surroundings of a request that may do all, but for one topic."""
    return SimpleNamespace(
        may=lambda *asked: True,
        permitted=lambda operation, kind, names: set(names) - {"hidden"},
    )


def noted(begun: Sequence[str], deleting: Sequence[str]) -> StatePartitions:
    """Return what is noted of topics with state, and of others that are losing it."""
    return StatePartitions(
        initialized={IDS[name]: Begun(name, frozenset(range(COUNTS[name])), 0) for name in begun},
        deleting=frozenset(IDS[name] for name in deleting if name not in begun),
    )


@given(names=st.lists(NAMES, max_size=30), begun=st.none() | BEGUN, deleting=BEGUN)
def test_topics_that_are_not_there_need_no_decision(
    names: list[str], begun: list[str] | None, deleting: list[str]
) -> None:
    groups = Decides(None if begun is None else noted(begun, deleting))
    request = DeleteShareGroupOffsetsRequest(
        group_id="g", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=n) for n in names]
    )
    answer = asyncio.run(delete_share_group_offsets.handle(services(groups), context(), request))
    told = [(one.topic_name, one.topic_id, one.error_code) for one in answer.responses]
    asked = [name for name in names if name != "hidden"]
    whole = administration.begin_offset_deletion(groups.turn(), asked)
    # In Kafka's order, which test_share_orders_against_kafka.py holds.
    in_order = put_ids(computed_ids(one for one, some in whole.topics.items() for _ in some))
    none, denied = bytes(16), ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert told == [
        *(("hidden", none, denied) for name in names if name == "hidden"),
        *((TOPICS.name_of(topic_id), topic_id, 0) for topic_id in in_order),
        *((name, none, code) for name, (code, _) in whole.refused.items()),
    ]
    assert groups.decided <= 2 * len(COUNTS)


@given(
    topics=st.lists(
        st.tuples(NAMES, st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 9)), max_size=9)),
        max_size=12,
    )
)
def test_partitions_that_are_not_there_need_no_decision(
    topics: list[tuple[str, list[tuple[int, int]]]],
) -> None:
    request = AlterShareGroupOffsetsRequest(
        group_id="g",
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=at, start_offset=offset)
                    for at, offset in partitions
                ],
            )
            for name, partitions in topics
        ],
    )
    groups = Decides(None)
    answer = asyncio.run(alter_share_group_offsets.handle(services(groups), context(), request))
    assert groups.decided <= 2 * sum(COUNTS.values())

    def all_permitted(_: object, asked: Sequence[Any], permitted: set[str]) -> list[Any]:
        return [topic for topic in asked if topic.topic_name in permitted]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alter_share_group_offsets, "_wanted", all_permitted)
        whole = asyncio.run(alter_share_group_offsets.handle(services(groups), context(), request))
    assert answer == whole
    # And the same starts are noted.
    reduced = alter_share_group_offsets._wanted(TOPICS, request.topics, set(COUNTS))
    decided = [
        asyncio.run(groups.alter_offsets(replace(request, topics=some)))[0]
        for some in (reduced, request.topics)
    ]
    assert decided[0] == decided[1]
