"""Cursors of DescribeTopicPartitions: whatever the limit, the pages together are all there is."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.apis import describe_topic_partitions, unregister_broker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.admin import NODE_ID, Admin, admin, create
from tests.support.requests import creatable

COUNTS = {"a": 1, "a.b": 3, "b": 2, "orders": 7, "z_": 1}
MISSING = ["aa", "nope", "not/legal", "zz"]

Page = list[tuple[str, int]]


async def page(broker: Admin, names: list[str], limit: int, cursor: Cursor | None) -> (
    DescribeTopicPartitionsResponse
):  # fmt: skip
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    response: DescribeTopicPartitionsResponse = await broker.call(
        describe_topic_partitions.handle, request, 0
    )
    return response


async def walk(broker: Admin, names: list[str], limit: int) -> tuple[Page, list[str]]:
    """Follow the cursors to the end; return the partitions told of, and the unknown topics."""
    found: Page = []
    unknown: list[str] = []
    cursor = None
    while True:
        response = await page(broker, names, limit, cursor)
        told = [(str(t.name), p.partition_index) for t in response.topics for p in t.partitions]
        assert len(told) <= max(limit, 1)
        found += told
        unknown += [str(one.name) for one in response.topics if one.error_code]
        following = response.next_cursor
        if following is None:
            return found, unknown
        assert told, "each page goes on"
        before = cursor and (cursor.topic_name, cursor.partition_index)
        assert before is None or (following.topic_name, following.partition_index) > before
        cursor = following




async def test_pages_of_any_size_are_all_there_is(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, *(creatable(name, count) for name, count in COUNTS.items()))
        every = [(name, number) for name in sorted(COUNTS) for number in range(COUNTS[name])]
        for limit in (*range(-1, 16), 2000):
            assert await walk(broker, [], limit) == (every, [])

        cases: list[tuple[list[str], int]] = []

        @given(st.lists(st.sampled_from([*COUNTS, *MISSING]), min_size=1), st.integers(-1, 20))
        def draw(asked: list[str], limit: int) -> None:
            cases.append((asked, limit))

        draw()
        for asked, limit in cases:
            found, unknown = await walk(broker, asked, limit)
            assert found == [one for one in every if one[0] in asked]
            assert unknown == sorted(set(asked) & set(MISSING))


async def test_a_page_has_no_more_than_the_broker_allows(tmp_path: Path) -> None:
    async with admin(tmp_path, {"max.request.partition.size.limit": "2"}) as broker:
        await create(broker, creatable("orders", 5))
        response = await page(broker, [], 2000, None)
        assert [one.partition_index for one in response.topics[0].partitions] == [0, 1]
        assert response.next_cursor == Cursor(topic_name="orders", partition_index=2)


async def test_a_cursor_must_be_of_a_topic_that_was_asked_for(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders", 5))
        for cursor in (
            Cursor(topic_name="other", partition_index=0),
            Cursor(topic_name="orders", partition_index=-1),
        ):
            response = await page(broker, ["orders"], 10, cursor)
            assert [one.error_code for one in response.topics] == [ErrorCode.INVALID_REQUEST]


async def test_the_only_broker_is_not_forgotten(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        request = UnregisterBrokerRequest(broker_id=NODE_ID)
        response = await broker.call(unregister_broker.handle, request, 0)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert "stop it instead" in response.error_message
