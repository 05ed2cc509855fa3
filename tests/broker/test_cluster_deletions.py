"""Topics that one broker of a cluster deletes, while others follow late, or come back."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.storage.partition_directories import PARTITION_METADATA
from tests.broker.live import batch, client, create, on_uvloop, until
from tests.broker.test_cluster import create_at, known_everywhere, member, without_news
from tests.support.requests import producing

if TYPE_CHECKING:
    from odradek.broker.composition import Broker


def removals(catalog: Path, broker: Broker) -> list[str]:
    """Return the names of deleted topics of which a broker's host still has files."""
    found = "SELECT name FROM removal WHERE host = ?"
    with sqlite3.connect(catalog) as connection:
        return [name for (name,) in connection.execute(found, (broker.brokers.own.host,))]


@on_uvloop
async def test_a_broker_has_nothing_to_remove_of_a_topic_that_it_never_saw(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    url = f"sqlite://{path}"
    async with member(tmp_path, url, 1) as one, member(tmp_path, url, 2) as two:
        await until(lambda: len(one.brokers) == len(two.brokers) == 2)
        async with without_news(two):
            short = await create(one, "t", 2)
            await one.topics.delete([short.topic_id])
            assert removals(path, two) == ["t"]
        await until(lambda: two.store.revision == one.store.revision)
        await create(two, "u", 2)  # the note is written with the next change
        assert removals(path, two) == []


@on_uvloop
async def test_a_topic_is_served_though_the_remains_of_a_former_one_were_removed(
    tmp_path: Path,
) -> None:
    """After a power failure the directory of its empty partition may lack the topic's id."""
    path = tmp_path / "c.db"
    url = f"sqlite://{path}"
    async with member(tmp_path, url, 1) as one, member(tmp_path, url, 2) as two:
        present = await create_at(one, [two], "t", 2)
        await create(two, "u", 2)
        await known_everywhere([one], "u")
    number = next(n for n, one in enumerate(present.record.leaders) if one.node_id == 2)
    directory = tmp_path / "2" / "data" / f"t-{number}"
    (directory / PARTITION_METADATA).unlink()
    with sqlite3.connect(path) as connection:
        row = bytes(16), "t", 2, present.record.leaders[number].host
        connection.execute(
            "INSERT INTO removal (topic_id, name, partition_count, host) VALUES (?, ?, ?, ?)", row
        )
    async with member(tmp_path, url, 2) as two:
        assert not two.topics.offline()
        async with client(two) as there:
            answer = await there.ask(producing("t", batch(b"a"), partition=number), version=9)
            assert not answer.responses[0].partition_responses[0].error_code
