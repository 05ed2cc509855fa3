"""The registry of topics: changes last over restarts and crashes, and fail one topic at a time."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.broker.errors import MetadataError, Refusal, code_of
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import MetadataStore, TopicRecord
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.plans import Enlargement, NewTopic, TopicPlan
from odradek.broker.topics.topic import Topic
from odradek.config.errors import ConfigError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.wire import encode_uuid
from odradek.storage.errors import DirectoryOffline, DiskFailure, StorageError, UnknownDirectory
from odradek.storage.files import FileSystem
from odradek.storage.real_files import RealFileSystem
from tests.broker.admin import Admin, admin, append

COMPACT = {"cleanup.policy": "compact"}


class PartlyBrokenDisk:
    """A file system that refuses to make or rename whatever has `refuses` in its name."""

    def __init__(self, refuses: str) -> None:
        self.refuses = refuses
        self._fs = RealFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def make_directory(self, path: Path, *, is_private: bool = False) -> None:
        self._check(path)
        self._fs.make_directory(path, is_private=is_private)

    def rename(self, source: Path, target: Path) -> None:
        self._check(source)
        self._fs.rename(source, target)

    def _check(self, path: Path) -> None:
        if self.refuses and self.refuses in path.name:
            raise DiskFailure(path, OSError(28, "No space left on device"))


class BrokenStore:
    """A metadata store that reads, and fails to write."""

    def __init__(self, store: SqliteMetadata) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name == "load":
            return self._store.load

        async def fail(*_: object) -> None:
            raise MetadataError("odradek.db: disk I/O error")

        return fail


def directories_of(broker: Admin) -> list[str]:
    return sorted(
        path.name for home in broker.directories for path in home.path.iterdir() if path.is_dir()
    )


def partitions_in(path: Path) -> list[Path]:
    return sorted(one for one in path.glob("data-*/*") if one.is_dir())


def described(topic: Topic | None) -> tuple[object, ...]:
    """Return all that makes a topic what it is."""
    assert topic is not None
    ends = [log.log_end_offset for log in topic.partitions]
    return topic.record, dict(topic.overrides), topic.config, ends


async def create(broker: Admin, *wanted: NewTopic) -> list[Topic]:
    outcomes = await broker.topics.create(wanted)
    assert all(isinstance(outcome, TopicPlan) for outcome in outcomes), outcomes
    found = [broker.topics.get(one.name) for one in wanted]
    return [topic for topic in found if topic is not None]


async def test_topics_are_found_by_name_and_by_id(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        (topic,) = await create(broker, NewTopic("orders", 3, configs=COMPACT))
        assert broker.topics.get("orders") is topic
        assert broker.topics.by_id(topic.topic_id) is topic
        assert [log.partition for log in topic.partitions] == [0, 1, 2]
        assert all(log.topic_id == topic.topic_id for log in topic.partitions)
        assert topic.config.compact
        assert list(broker.topics) == [topic]
        assert broker.topics.get("other") is None


async def test_topics_survive_a_restart_with_their_records(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        orders, other = await create(
            broker, NewTopic("orders", 3, configs=COMPACT), NewTopic("other")
        )
        append(orders.partitions[1], "a", "b")
        before = [described(broker.topics.get(name)) for name in ("orders", "other")]
        await broker.topics.enlarge([Enlargement("other", 2)])
        await broker.topics.delete([other.topic_id])
    async with admin(tmp_path) as broker:
        assert len(broker.topics) == 1
        assert described(broker.topics.get("orders")) == before[0]
        assert broker.partitions.strays == []


async def test_a_creation_that_a_crash_cut_short_is_finished(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        (topic,) = await create(broker, NewTopic("orders", 3))
        append(topic.partitions[0], "a")
        homes = [log.directory for log in topic.partitions]
        store_of(broker).note_made(topic.topic_id, ())  # as if the crash came before this
    shutil.rmtree(homes[1])
    (homes[2] / "partition.metadata").unlink()  # cut short inside the last one
    async with admin(tmp_path) as broker:
        found = broker.topics.get("orders")
        assert found is not None
        assert [log.log_end_offset for log in found.logs] == [1, 0, 0]
        assert broker.partitions.strays == []


async def test_a_partition_whose_directory_is_gone_is_not_created_again(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, NewTopic("orders", 2))
        await broker.topics.enlarge([Enlargement("orders", 3)])
        homes = [log.directory for log in broker.topics.get("orders").logs]
    shutil.move(homes[2], tmp_path / "away")
    for _ in range(2):
        async with admin(tmp_path) as broker:
            found = broker.topics.get("orders")
            with pytest.raises(DirectoryOffline, match="the directory of orders-2 is gone"):
                found.log(2)
            assert [log.partition for log in found.logs] == [0, 1]
    shutil.move(tmp_path / "away", homes[2])
    async with admin(tmp_path) as broker:
        assert len(broker.topics.get("orders").logs) == 3
    shutil.rmtree(homes[2])
    async with admin(tmp_path, {"odradek.create.missing.partitions": "true"}) as broker:
        assert len(broker.topics.get("orders").logs) == 3


async def test_a_deletion_that_a_crash_cut_short_is_finished(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, NewTopic("orders", 3), NewTopic("other"))
        topic = broker.topics.get("orders")
        assert topic is not None
        store = cast("SqliteMetadata", broker.topics._store)
        await store.begin_deletion([topic.topic_id])
        broker.directories[0].delete_log(topic.partitions[0], 0)
    async with admin(tmp_path) as broker:
        assert [one.name for one in broker.topics] == ["other"]
        left = [name for name in directories_of(broker) if not name.endswith("-delete")]
        assert left == ["other-0"]
        assert (await store_of(broker).load()).topics[0].name == "other"


async def test_a_deleted_topic_leaves_nothing_to_its_successor(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        (first,) = await create(broker, NewTopic("orders", configs=COMPACT))
        append(first.partitions[0], "a")
        assert await broker.topics.delete([first.topic_id]) == [None]
        (second,) = await create(broker, NewTopic("orders"))
        assert second.topic_id != first.topic_id
        assert second.overrides == {}
        assert second.partitions[0].log_end_offset == 0
        assert broker.topics.by_id(first.topic_id) is None


async def test_a_directory_that_belongs_to_no_topic_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin(tmp_path) as broker:
        (topic,) = await create(broker, NewTopic("orders", 2))
        append(topic.partitions[0], "a")
        log_file = topic.partitions[0].segments[0].log.path
        await store_of(broker).finish_deletion([topic.topic_id])
    content = log_file.read_bytes()
    async with admin(tmp_path) as broker:
        assert broker.topics.get("orders") is None
        assert [path.name for path in broker.partitions.strays] == ["orders-0", "orders-1"]
        assert "left alone a directory" in caplog.text
        (refused,) = await broker.topics.create([NewTopic("orders")])
        assert isinstance(refused, Refusal)
        assert "orders-0 belongs to no topic" in str(refused)
        await create(broker, NewTopic("another"))
    assert log_file.read_bytes() == content


async def test_a_directory_of_another_topic_of_the_same_name_is_not_served(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path) as broker:
        (topic,) = await create(broker, NewTopic("orders"))
        store = store_of(broker)
        await store.finish_deletion([topic.topic_id])
        await store.create_topics([(TopicRecord("orders", b"x" * 16, 1, 1, 0), {})])
    async with admin(tmp_path) as broker:
        found = broker.topics.get("orders")
        assert found is not None
        with pytest.raises(UnknownDirectory, match="orders-0 belongs to a topic of id"):
            found.log(0)


@pytest.mark.parametrize("bits", [[0], [7], [1, 60, 100]])
async def test_a_directory_with_a_damaged_topic_id_stays_the_topics(
    tmp_path: Path, bits: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async with admin(tmp_path, directories=2) as broker:
        topics = await create(broker, NewTopic("orders", 2), NewTopic("other", 3))
        append(topics[0].partitions[0], "a", "b")
        home = topics[0].partitions[0].directory
    path = home / "partition.metadata"
    damaged = bytearray(topics[0].topic_id)
    for bit in bits:
        damaged[bit // 8] ^= 1 << bit % 8
    path.write_text(f"version: 0\ntopic_id: {encode_uuid(bytes(damaged))}\n")
    async with admin(tmp_path, directories=2) as broker:
        found = broker.topics.get("orders")
        assert found is not None
        assert [log.log_end_offset for log in found.partitions] == [2, 0]
        assert found.partitions[0].directory == home
        assert broker.partitions.strays == []
        assert f"{path} is damaged at position " in caplog.text
        assert encode_uuid(found.topic_id) in path.read_text()


async def test_an_empty_partition_is_not_made_beside_a_foreign_directory_of_its_name(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path, directories=2) as broker:
        (topic,) = await create(broker, NewTopic("orders"))
        append(topic.partitions[0], "a")
        home = topic.partitions[0].directory
        await create(broker, NewTopic("other"))
        store = store_of(broker)
        await store.finish_deletion([topic.topic_id])
        await store.create_topics([(TopicRecord("orders", b"x" * 16, 1, 1, 0), {})])
    before = partitions_in(tmp_path)
    async with admin(tmp_path, directories=2) as broker:
        found = broker.topics.get("orders")
        assert found is not None
        with pytest.raises(UnknownDirectory, match=f"{home} belongs to a topic of id"):
            found.log(0)
    assert partitions_in(tmp_path) == before


async def test_a_topic_is_not_enlarged_over_a_directory_that_belongs_to_no_topic(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, NewTopic("orders"))
        stray = tmp_path / "data-0" / "orders-1"
        stray.mkdir()
        (stray / "partition.metadata").write_text("version: 0\ntopic_id: " + "x" * 21 + "A\n")
    async with admin(tmp_path) as broker:
        (refused,) = await broker.topics.enlarge([Enlargement("orders", 2)])
        assert isinstance(refused, Refusal)
        assert f"{stray} belongs to no topic" in str(refused)
    async with admin(tmp_path) as broker:
        found = broker.topics.get("orders")
        assert found is not None
        assert len(found.partitions) == 1


async def test_new_partitions_go_to_the_emptiest_directory(tmp_path: Path) -> None:
    async with admin(tmp_path, directories=2) as broker:
        (topic,) = await create(broker, NewTopic("orders", 4))
        homes = {log.partition: log.directory.parent for log in topic.partitions}
        assert sorted(len(home.logs) for home in broker.directories) == [2, 2]
    async with admin(tmp_path, directories=2) as broker:
        found = broker.topics.get("orders")
        assert found is not None
        assert {log.partition: log.directory.parent for log in found.partitions} == homes


async def test_a_full_disk_fails_one_topic_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    disk = PartlyBrokenDisk("orders-1")
    async with admin(tmp_path, fs=cast("FileSystem", disk)) as broker:
        failed, other = await broker.topics.create([NewTopic("orders", 2), NewTopic("other")])
        assert isinstance(failed, StorageError)
        assert code_of(failed) is ErrorCode.KAFKA_STORAGE_ERROR
        assert isinstance(other, TopicPlan)
        assert broker.topics.get("orders") is None
        disk.refuses = ""
        (topic,) = await create(broker, NewTopic("orders", 2))
        assert len(topic.partitions) == 2


async def test_an_enlargement_that_failed_can_be_tried_again(tmp_path: Path) -> None:
    disk = PartlyBrokenDisk("orders-2")
    async with admin(tmp_path, fs=cast("FileSystem", disk)) as broker:
        await create(broker, NewTopic("orders"))
        wanted = [Enlargement("orders", 3)]
        (failed,) = await broker.topics.enlarge(wanted)
        assert isinstance(failed, StorageError)
        assert partition_count(broker, "orders") == 1
        disk.refuses = ""
        assert await broker.topics.enlarge(wanted) == [None]
        assert partition_count(broker, "orders") == 3


async def test_a_deletion_that_the_disk_refuses_is_finished_at_the_next_start(
    tmp_path: Path,
) -> None:
    disk = PartlyBrokenDisk("")
    async with admin(tmp_path, fs=cast("FileSystem", disk)) as broker:
        (topic,) = await create(broker, NewTopic("orders", 2))
        disk.refuses = "orders-1"
        (failed,) = await broker.topics.delete([topic.topic_id])
        assert isinstance(failed, StorageError)
        assert broker.topics.get("orders") is None
        disk.refuses = ""
    async with admin(tmp_path) as broker:
        assert len(broker.topics) == 0
        assert broker.partitions.strays == []
        await create(broker, NewTopic("orders", 2))


async def test_changes_that_the_store_cannot_write_have_no_effect(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        (topic,) = await create(broker, NewTopic("orders"))
        before = described(topic)
    broken = cast("Any", BrokenStore)
    async with admin(tmp_path, wrap=broken) as broker:
        outcomes: list[object] = [
            *await broker.topics.create([NewTopic("new")]),
            *await broker.topics.delete([topic.topic_id]),
            *await broker.topics.enlarge([Enlargement("orders", 2)]),
            *(await broker.topics.alter_configs({"orders": lambda _: COMPACT})).values(),
        ]
        assert all(isinstance(outcome, MetadataError) for outcome in outcomes), outcomes
        assert described(broker.topics.get("orders")) == before
        assert directories_of(broker) == ["orders-0"]


async def test_the_longest_name_can_be_created_and_deleted(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        (topic,) = await create(broker, NewTopic("x" * topic_names.LENGTH_MAX, 11))
        assert await broker.topics.delete([topic.topic_id]) == [None]


async def test_only_one_of_several_simultaneous_creations_of_a_topic_succeeds(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path) as broker:
        outcomes = await asyncio.gather(
            *(broker.topics.create([NewTopic("orders", count)]) for count in (1, 2, 3))
        )
        kinds = [type(outcome) for (outcome,) in outcomes]
        assert kinds == [TopicPlan, Refusal, Refusal]
        assert partition_count(broker, "orders") == 1


async def test_a_topic_is_created_though_the_client_that_asked_has_gone(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        asking = asyncio.create_task(broker.topics.create([NewTopic("orders", 5)]))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        (other,) = await broker.topics.create([NewTopic("orders")])
        assert isinstance(other, Refusal)
        assert partition_count(broker, "orders") == 5


async def test_settings_reach_the_logs_and_those_who_listen(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        (topic,) = await create(broker, NewTopic("orders", 2))
        heard: list[str] = []
        broker.topics.on_config_changed.append(lambda changed: heard.append(changed.name))
        outcomes = await broker.topics.alter_configs({"orders": lambda _: COMPACT})
        assert outcomes == {"orders": None}
        assert all(log.config.compact for log in topic.partitions)
        assert heard == ["orders"]


async def test_topics_follow_the_settings_of_the_broker(tmp_path: Path) -> None:
    async with admin(tmp_path, {"log.retention.ms": "1000"}) as broker:
        follower, own = await create(
            broker, NewTopic("a"), NewTopic("b", configs={"retention.ms": "7"})
        )
        heard: list[str] = []
        broker.topics.on_config_changed.append(lambda changed: heard.append(changed.name))
        await broker.configs.alter(
            "1", lambda _: {"log.retention.ms": "2000"}, validate_only=False
        )
        assert follower.partitions[0].config.retention_ms == 2000
        assert own.partitions[0].config.retention_ms == 7
        assert heard == ["a"]
    async with admin(tmp_path, {"log.retention.ms": "1000"}) as broker:
        found = broker.topics.get("a")
        assert found is not None
        assert found.config.retention_ms == 2000


async def test_the_broker_refuses_a_setting_that_would_contradict_a_topic(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, NewTopic("orders", configs={"min.compaction.lag.ms": "5000"}))
        setting = {"log.cleaner.max.compaction.lag.ms": "1000"}
        with pytest.raises(Refusal, match="topic orders: conflict"):
            await broker.configs.alter("", lambda _: setting, validate_only=False)
        assert not setting.keys() & broker.configs.defaults_of_all_brokers


async def test_a_start_with_settings_that_contradict_a_topic_names_it(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, NewTopic("orders", configs={"min.compaction.lag.ms": "5000"}))
    with pytest.raises(ConfigError, match="topic orders: conflict"):
        async with admin(tmp_path, {"log.cleaner.max.compaction.lag.ms": "1000"}):
            pass


@pytest.mark.parametrize("name", [topic_names.CONSUMER_OFFSETS, topic_names.TRANSACTION_STATE])
async def test_internal_topics_are_made_on_first_need(tmp_path: Path, name: str) -> None:
    settings = {
        "offsets.topic.num.partitions": "4",
        "offsets.topic.segment.bytes": "2097152",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.segment.bytes": "2097152",
        "log.cleanup.policy": "delete",
    }
    async with admin(tmp_path, settings) as broker:
        topics = await asyncio.gather(*(broker.topics.internal(name) for _ in range(3)))
        assert len({id(topic) for topic in topics}) == 1
        topic = topics[0]
        assert topic.is_internal
        assert len(topic.partitions) == 4
        assert topic.config.compact and not topic.config.delete
        assert topic.config.segment_bytes == 2097152


async def test_the_offsets_topic_may_have_segments_smaller_than_clients_may_ask_for(
    tmp_path: Path,
) -> None:
    settings = {"offsets.topic.segment.bytes": "4096", "offsets.topic.num.partitions": "1"}
    async with admin(tmp_path, settings) as broker:
        topic = await broker.topics.internal(topic_names.CONSUMER_OFFSETS)
        assert topic.partitions[0].config.segment_bytes == 4096


async def test_listeners_hear_of_logs_before_requests_do_and_of_deletions_after(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path) as broker:
        events: list[tuple[str, bool]] = []
        broker.partitions.on_log.append(
            lambda log: events.append((log.name, broker.topics.get(log.topic) is not None))
        )
        broker.topics.on_deleted.append(
            lambda topic: events.append((topic.name, topic.partitions[0].is_deleted))
        )
        (topic,) = await create(broker, NewTopic("orders"))
        await broker.topics.delete([topic.topic_id])
        assert events == [("orders-0", False), ("orders", True)]


async def test_requests_get_a_turn_while_many_partitions_are_made(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        creating = asyncio.create_task(broker.topics.create([NewTopic("orders", 20)]))
        turns = 0
        while not creating.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 20


async def test_an_empty_broker_logs_no_warnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with admin(tmp_path):
            pass
    assert caplog.records == []


def partition_count(broker: Admin, name: str) -> int:
    topic = broker.topics.get(name)
    assert topic is not None
    return len(topic.partitions)


def store_of(broker: Admin) -> MetadataStore:
    return broker.topics._store
