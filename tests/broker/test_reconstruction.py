"""Without metadata, topics come back from the directories of their partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.metadata.images import COPY_NAME, DATABASE_NAME
from odradek.broker.topics.registry import Topic
from tests.broker.live import append, batch, client, create, live, on_uvloop

SETTINGS = {"offsets.topic.num.partitions": "3"}


def forget(path: Path) -> None:
    """Move the metadata away, as the broker says when all of it is damaged."""
    for name in (DATABASE_NAME, COPY_NAME):
        (path / "data" / name).unlink()


def told(topic: Topic | None) -> tuple[Any, ...]:
    assert topic is not None
    ends = [log.log_end_offset for log in topic.partitions]
    return topic.topic_id, ends, [list(log.batches(0)) for log in topic.partitions]


@on_uvloop
async def test_topics_come_back_with_their_ids_and_records_and_nothing_is_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        orders = await create(broker, "orders", 3, {"retention.ms": "1000"})
        await create(broker, "table", configs={"cleanup.policy": "compact"})
        await broker.topics.internal("__consumer_offsets")
        append(orders.partitions[1], batch(b"a"), batch(b"b"))
        names = ("orders", "table", "__consumer_offsets")
        before = {name: told(broker.topics.get(name)) for name in names}
        internal = broker.topics.get("__consumer_offsets")
        assert internal is not None
        cluster_id = broker.cluster_id
    forget(tmp_path)
    for _ in range(2):
        async with live(tmp_path, SETTINGS) as broker:
            assert {topic.name: told(topic) for topic in broker.topics} == before
            assert broker.cluster_id == cluster_id
            for name in ("orders", "table"):
                found = broker.topics.get(name)
                assert found is not None
                assert (found.config.retention_ms, found.config.retention_bytes) == (-1, -1)
            offsets = broker.topics.get("__consumer_offsets")
            assert offsets is not None
            assert offsets.overrides == internal.overrides
    assert caplog.text.count("found no metadata: created 3 topics again") == 1


@on_uvloop
async def test_producer_ids_that_logs_know_are_not_handed_out_again(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        taken = [await broker.producer_ids.take() for _ in range(3)]
        append(
            topic.partitions[0],
            batch(b"a", producer_id=taken[-1], producer_epoch=0, base_sequence=0),
        )
    forget(tmp_path)
    async with live(tmp_path) as broker:
        assert await broker.producer_ids.take() not in taken


@on_uvloop
async def test_one_damaged_id_among_a_topics_partitions_is_outvoted(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 3)
        append(topic.partitions[0], batch(b"a"))
        noted = topic.partitions[0].directory / "partition.metadata"
    text = noted.read_text()
    noted.write_text(text[:-3] + ("A" if text[-3] != "A" else "Q") + text[-2:])
    forget(tmp_path)
    async with live(tmp_path) as broker:
        found = broker.topics.get("orders")
        assert found is not None
        assert found.topic_id == topic.topic_id
        assert [log.log_end_offset for log in found.partitions] == [1, 0, 0]


@on_uvloop
async def test_a_new_directory_has_no_topics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(tmp_path) as broker, client(broker):
        assert len(broker.topics) == 0
    assert "found no metadata" not in caplog.text
