"""The metadata store: what is written is there after a restart, wholly or not at all."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.errors import MetadataError
from odradek.broker.metadata.images import COPY_NAME, DATABASE_NAME, Images
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import (
    Metadata,
    Resource,
    ResourceType,
    SecurityKind,
    TopicRecord,
)
from odradek.storage.real_files import RealFileSystem

TOPIC = Resource(ResourceType.TOPIC, "orders")


def topic(name: str = "orders", number: int = 1, partitions: int = 1) -> TopicRecord:
    return TopicRecord(name, bytes([number]) * 16, partitions, 1, 1_700_000_000_000)


def open_store(path: Path, cluster_id: str = "a-cluster") -> SqliteMetadata:
    return SqliteMetadata(RealFileSystem(), [path.parent], lambda: cluster_id)


def with_store(path: Path, use: Callable[[SqliteMetadata], Awaitable[object]]) -> Metadata:
    """Open a store, use it, close it; return what a store opened afterwards holds."""

    async def once(use: Callable[[SqliteMetadata], Awaitable[object]]) -> object:
        store = open_store(path)
        try:
            await store.settle()
            return await use(store)
        finally:
            await store.close()

    asyncio.run(once(use))
    loaded = asyncio.run(once(SqliteMetadata.load))
    assert isinstance(loaded, Metadata)
    return loaded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / DATABASE_NAME


def test_a_new_database_is_empty_and_keeps_its_cluster_id(path: Path) -> None:
    async def nothing(_: SqliteMetadata) -> None:
        pass

    assert with_store(path, nothing) == Metadata("a-cluster", (), {})
    other = open_store(path, "another-cluster")
    assert asyncio.run(other.load()).cluster_id == "a-cluster"
    asyncio.run(other.close())


def test_topics_come_back_with_their_configs(path: Path) -> None:
    async def create(store: SqliteMetadata) -> None:
        await store.create_topics([(topic(), {"retention.ms": "5"}), (topic("b", 2, 3), {})])
        await store.enlarge_topics([topic(partitions=7)])

    loaded = with_store(path, create)
    assert loaded.topics == (topic("b", 2, 3), topic(partitions=7))
    assert loaded.configs == {TOPIC: {"retention.ms": "5"}}


def test_topics_are_created_all_or_none(path: Path) -> None:
    async def create_twice(store: SqliteMetadata) -> None:
        await store.create_topics([(topic(), {})])
        with pytest.raises(MetadataError, match=DATABASE_NAME):
            await store.create_topics([(topic("new", 2), {"a": "b"}), (topic(number=3), {})])
        await store.create_topics([(topic("later", 4), {})])

    loaded = with_store(path, create_twice)
    assert [one.name for one in loaded.topics] == ["later", "orders"]
    assert loaded.configs == {}


def test_a_deletion_that_began_is_remembered_until_it_is_finished(path: Path) -> None:
    async def begin(store: SqliteMetadata) -> None:
        await store.create_topics([(topic(), {"retention.ms": "5"}), (topic("b", 2), {})])
        await store.begin_deletion([topic().topic_id])

    async def finish(store: SqliteMetadata) -> None:
        await store.finish_deletion([topic().topic_id])

    begun = with_store(path, begin)
    assert {one.name: one.is_deleting for one in begun.topics} == {"orders": True, "b": False}
    finished = with_store(path, finish)
    assert [one.name for one in finished.topics] == ["b"]
    assert finished.configs == {}


configs = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4)
resources = st.builds(Resource, st.sampled_from(ResourceType), st.sampled_from(["", "0", "a"]))


@settings(max_examples=12, deadline=None)  # each opens a database twice
@given(changes=st.lists(st.dictionaries(resources, configs, max_size=3), max_size=5))
def test_replacing_configs_leaves_the_last_ones(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[dict[Resource, dict[str, str]]],
) -> None:
    async def replace(store: SqliteMetadata) -> None:
        for change in changes:
            await store.replace_configs(change)

    path = tmp_path_factory.mktemp("configs") / DATABASE_NAME
    expected: dict[Resource, dict[str, str]] = {}
    for change in changes:
        expected |= change
    loaded = with_store(path, replace)
    assert loaded.configs == {owner: values for owner, values in expected.items() if values}


def test_rows_about_security_come_back_until_they_are_removed(path: Path) -> None:
    async def change(store: SqliteMetadata) -> None:
        await store.change_security(SecurityKind.ACL, {"one": "1", "two": "2"})
        await store.change_security(SecurityKind.QUOTA, {"one": "other"})
        await store.change_security(SecurityKind.ACL, {"one": None, "two": "3", "none": None})

    assert with_store(path, change).security == {
        SecurityKind.ACL: {"two": "3"},
        SecurityKind.QUOTA: {"one": "other"},
    }


def test_producer_ids_are_never_handed_out_twice(path: Path) -> None:
    taken: list[int] = []

    async def take(store: SqliteMetadata) -> None:
        firsts = await asyncio.gather(*(store.allocate_producer_ids(1000) for _ in range(4)))
        for first in firsts:
            taken.extend(range(first, first + 1000))

    with_store(path, take)
    with_store(path, take)
    assert sorted(taken) == list(range(8000))


def test_changes_that_a_killed_process_had_committed_are_there(path: Path) -> None:
    script = f"""
import asyncio, os, signal
from pathlib import Path
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import TopicRecord
from odradek.storage.real_files import RealFileSystem

async def main():
    store = SqliteMetadata(RealFileSystem(), [Path({str(path.parent)!r})], lambda: "a-cluster")
    await store.create_topics([(TopicRecord("orders", bytes(16), 3, 1, 0), {{"k": "v"}})])
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script], cwd=root, check=False, timeout=60)
    store = open_store(path, "another")
    loaded = asyncio.run(store.load())
    asyncio.run(store.close())
    assert loaded.cluster_id == "a-cluster"
    assert [one.partition_count for one in loaded.topics] == [3]
    assert loaded.configs == {TOPIC: {"k": "v"}}


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.write_bytes(b"this was a database once" * 100)
    with pytest.raises(MetadataError, match=f"{DATABASE_NAME}.*damaged"):
        open_store(path)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MetadataError, match="nowhere"):
        with_store(tmp_path / "nowhere" / DATABASE_NAME, SqliteMetadata.load)


def test_a_database_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA user_version = 99")
    Images(RealFileSystem(), [tmp_path]).write(database.serialize())
    database.close()
    with pytest.raises(MetadataError, match="newer release"):
        open_store(tmp_path / DATABASE_NAME)


def test_closing_leaves_the_database_and_its_copy(path: Path) -> None:
    with_store(path, SqliteMetadata.load)
    assert {one.name for one in path.parent.iterdir()} == {DATABASE_NAME, COPY_NAME}
