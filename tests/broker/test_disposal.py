"""Large messages are freed some items at a time, and whoever still has them keeps them."""

from __future__ import annotations

import copy
import gc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.loop.disposal import free, hold_items
from odradek.broker.network import serving
from odradek.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.pacing import Worker
from tests.broker.live import client, live, on_uvloop

NO_TIME_S = -1.0


class Noted(str):
    """A name that tells how many of its kind there are."""

    alive = 0

    def __new__(cls, text: str) -> Noted:
        cls.alive += 1
        return super().__new__(cls, text)

    def __deepcopy__(self, memo: dict[int, Any]) -> str:
        return str(self)

    def __del__(self) -> None:
        type(self).alive -= 1


def described(counts: list[int]) -> DescribeConfigsRequest:
    """Return a request with so many keys in each of its resources."""
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=2,
                resource_name=Noted(f"name-{rank}"),
                configuration_keys=[Noted(f"key-{rank}-{number}") for number in range(count)],
            )
            for rank, count in enumerate(counts)
        ]
    )


@given(counts=st.lists(st.sampled_from([0, 1, 63, 64, 65, 300]), max_size=80))
def test_items_that_others_still_hold_are_not_changed(counts: list[int]) -> None:
    message = described(counts)
    before = copy.deepcopy(message)
    free(hold_items(message))
    assert message == before


@pytest.mark.parametrize("counts", [[20_000], [1] * 20_000, [300] * 100])
def test_a_slice_frees_little_of_a_large_message(counts: list[int]) -> None:
    def let_go() -> None:
        message = described(counts)
        held = hold_items(message)
        del message
        free(held)

    assert not Noted.alive
    worker, most, slices = Worker(), 0, 0
    is_over = worker.begin(let_go, NO_TIME_S)
    while not is_over:
        before = Noted.alive
        is_over = worker.go_on(NO_TIME_S)
        most, slices = max(most, before - Noted.alive), slices + 1
    worker.take()
    assert not Noted.alive
    assert slices > 100
    assert most <= 64 * 2  # a name and a key go together


@on_uvloop
async def test_large_requests_are_freed_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[tuple[int, int]] = []
    kinds = (OffsetForLeaderPartition, EpochEndOffset, DeletableGroupResult)

    # Modules of other tests may have some, too.
    others = {id(one): one for one in gc.get_objects() if isinstance(one, kinds)}

    def alive_count() -> int:
        return sum(isinstance(one, kinds) and id(one) not in others for one in gc.get_objects())

    def free_and_note(held: list[list[Any]]) -> None:
        before = alive_count()
        free(held)
        noted.append((before, alive_count()))

    monkeypatch.setattr(serving, "free", free_and_note)
    # Else a response may be encoded in the turn in which it comes, which has it in its hands.
    monkeypatch.setattr("odradek.broker.loop.slices.SLICE_S", NO_TIME_S)
    partitions = [
        OffsetForLeaderPartition(partition=number, current_leader_epoch=-1, leader_epoch=0)
        for number in range(6_000)
    ]
    at_once = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)]
    )
    awaited = DeleteGroupsRequest(groups_names=[f"g{number}" for number in range(12_000)])
    async with live(tmp_path) as broker, client(broker) as one:
        await one.ask(at_once, version=4)
        await one.ask(awaited, version=2)
        small = DeleteGroupsRequest(groups_names=["g"])
        await one.ask(small, version=2)
    # Those of the request and of the response are there until then, and no longer.
    ours = len(partitions)
    assert noted == [(3 * ours, ours), (ours + 12_000, ours)]
