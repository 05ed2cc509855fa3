"""Adopting Kafka's data: what is taken, what is in the way, and what a crash leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.broker.adoption.adopt import Source, carry_out, prepare
from odradek.broker.metadata.images import DATABASE_NAME
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import Metadata, Resource, ResourceType, SecurityKind
from odradek.broker.security.acls import from_row
from odradek.broker.security.credentials import ScramCredential
from odradek.broker.security.quotas.entities import read_entity, read_quotas
from odradek.broker.security.scram_users import ScramUsers
from odradek.cli.adopt import adopt
from odradek.config.topic import TopicConfig
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.messages import metadata_records as records
from odradek.protocol.wire import encode_uuid
from odradek.storage.directory import LogDirectory
from odradek.storage.real_files import RealFileSystem
from tests.broker.live import client, live, on_uvloop
from tests.broker.moved_cluster import digests
from tests.storage.test_kraft import WRITTEN_MS, batch, frame, write_log

FS = RealFileSystem()
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NODE_ID = 3
ORDERS, PRICES = bytes(range(16)), bytes(range(16, 32))
DIRECTORY_ID = bytes(range(32, 48))


def topic(name: str, topic_id: bytes, *replicas: list[int], **changes: Any) -> list[object]:
    """Make the records of a topic, one list of replicas for each partition."""
    made: list[object] = [records.TopicRecord(name=name, topic_id=topic_id)]
    for number, brokers in enumerate(replicas):
        partition = records.PartitionRecord(
            partition_id=number, topic_id=topic_id, replicas=brokers, isr=brokers,
            removing_replicas=[], adding_replicas=[], leader=brokers[0], leader_epoch=5,
            partition_epoch=0, directories=[DIRECTORY_ID] * len(brokers),
        )  # fmt: skip
        made.append(replace(partition, **changes))
    return made


def setting(kind: ResourceType, owner: str, name: str, value: str | None) -> object:
    return records.ConfigRecord(resource_type=kind, resource_name=owner, name=name, value=value)


def of_topic(name: str, value: str) -> object:
    return setting(ResourceType.TOPIC, "orders", name, value)


def kafkas(path: Path, log: Sequence[object], *partitions: tuple[str, int, bytes]) -> Source:
    """Make a directory as Kafka leaves it: a metadata log, and three records a partition."""
    home = LogDirectory(FS, path, cluster_id=CLUSTER_ID, node_id=NODE_ID)
    for name, number, topic_id in partitions:
        made = home.create_log(name, number, topic_id, TopicConfig(), now_ms=WRITTEN_MS)
        made.append(
            encode_batch([Record(at, WRITTEN_MS, None, b"v") for at in range(3)]),
            now_ms=WRITTEN_MS,
        )
    home.close()
    meta = f"node.id={NODE_ID}\nversion=1\ncluster.id={CLUSTER_ID}\n"
    (path / "meta.properties").write_text(
        meta + f"directory.id={encode_uuid(DIRECTORY_ID)}\n"
    )
    if log:
        (path / "__cluster_metadata-0").mkdir()
        versions = {records.PartitionRecord: 2}
        frames = [frame(one, versions.get(type(one), 0)) for one in log]
        write_log(path / "__cluster_metadata-0", batch(frames, 0))
    return Source((path,))


def stored(path: Path) -> Metadata:
    """Read what was adopted."""
    store = SqliteMetadata(FS, [path], lambda: "none")

    async def load() -> Metadata:
        try:
            return await store.load()
        finally:
            await store.close()

    return asyncio.run(load())


def test_topics_and_settings_are_taken_over(tmp_path: Path) -> None:
    source = kafkas(
        tmp_path,
        [
            *topic("orders", ORDERS, [NODE_ID], [NODE_ID, 4]),
            *topic("gone", PRICES, [NODE_ID]),
            of_topic("retention.ms", "1000"),
            of_topic("retention.ms", "2000"),
            of_topic("segment.ms", "1000"),
            setting(ResourceType.TOPIC, "orders", "segment.ms", None),
            setting(ResourceType.BROKER, "", "log.cleaner.threads", "2"),
            setting(ResourceType.BROKER, "3", "log.cleaner.backoff.ms", "5"),
            setting(ResourceType.BROKER, "4", "log.cleaner.backoff.ms", "6"),
            records.RemoveTopicRecord(topic_id=PRICES),
        ],
        ("orders", 0, ORDERS),
        ("orders", 1, ORDERS),
    )
    assert adopt(source, force=False, dry_run=False) == 0
    metadata = stored(tmp_path)
    assert metadata.cluster_id == CLUSTER_ID
    (orders,) = metadata.topics
    assert (orders.name, orders.topic_id, orders.partition_count) == ("orders", ORDERS, 2)
    assert orders.created_ms == WRITTEN_MS
    assert metadata.configs == {
        Resource(ResourceType.TOPIC, "orders"): {"retention.ms": "2000"},
        Resource(ResourceType.BROKER, ""): {"log.cleaner.threads": "2"},
        Resource(ResourceType.BROKER, "3"): {"log.cleaner.backoff.ms": "5"},
    }


def test_quotas_are_taken_over(tmp_path: Path) -> None:
    def quota(key: str, value: float, remove: bool = False, **parts: str | None) -> object:
        entity = [
            records.EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()
        ]
        return records.ClientQuotaRecord(entity=entity, key=key, value=value, remove=remove)

    source = kafkas(tmp_path, [
        quota("producer_byte_rate", 7.0, user="bob"),
        quota("producer_byte_rate", 8.0, user="bob"),
        quota("request_percentage", 0.5, user="bob"),
        quota("consumer_byte_rate", 9.0, user=None),
        quota("consumer_byte_rate", 9.0, user="gone"),
        quota("consumer_byte_rate", 0.0, user="gone", remove=True),
        quota("connection_creation_rate", 10.0, ip="192.0.2.7"),
    ])  # fmt: skip
    assert adopt(source, force=False, dry_run=False) == 0
    rows = stored(tmp_path).security[SecurityKind.QUOTA]
    assert {read_entity(name): dict(read_quotas(text)) for name, text in rows.items()} == {
        (("user", "bob"),): {"producer_byte_rate": 8.0, "request_percentage": 0.5},
        (("user", None),): {"consumer_byte_rate": 9.0},
        (("ip", "192.0.2.7"),): {"connection_creation_rate": 10.0},
    }


def test_records_that_are_not_taken_over_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = records.EntityData(entity_type="user", entity_name="bob")
    limit = "producer_byte_rate"
    source = kafkas(tmp_path, [
        records.UserScramCredentialRecord(
            name="carol", mechanism=3, salt=b"", stored_key=b"", server_key=b"", iterations=4096
        ),
        records.ClientQuotaRecord(entity=[user], key=limit, value=1.0, remove=False),
        records.ClientQuotaRecord(entity=[user], key="later_rate", value=1.0, remove=False),
        records.DelegationTokenRecord(
            owner="d", requester="d", renewers=[], issue_timestamp=0, max_timestamp=0,
            expiration_timestamp=0, token_id="t",
        ),
        records.FeatureLevelRecord(name="share.version", feature_level=1),
        setting(ResourceType.BROKER, "4", "log.cleaner.threads", "6"),
        setting(ResourceType.GROUP, "readers", "share.auto.offset.reset", "earliest"),
    ])  # fmt: skip
    assert adopt(source, force=False, dry_run=True) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in (
        "1 SCRAM credential of carol (mechanism 3)",
        "1 client quota later_rate of user bob", "1 delegation token", "share.version=1",
        "settings of broker 4 log.cleaner.threads",
        "settings of group readers share.auto.offset.reset",
    ):  # fmt: skip
        assert words in printed


def test_users_of_scram_are_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def user(name: str, iterations: int = 4096) -> object:
        return records.UserScramCredentialRecord(
            name=name, mechanism=2, salt=b"s", stored_key=b"a", server_key=b"b",
            iterations=iterations,
        )  # fmt: skip

    source = kafkas(tmp_path, [
        user("carol"),
        user("carol", 8192),
        user("gone"),
        records.RemoveUserScramCredentialRecord(name="gone", mechanism=2),
    ])  # fmt: skip
    assert adopt(source, force=False, dry_run=False) == 0
    assert "1 SCRAM credential of carol" in " ".join(capsys.readouterr().out.split())
    rows = stored(tmp_path).security[SecurityKind.SCRAM_CREDENTIAL]
    users = ScramUsers(rows, cast("Any", None))
    assert list(users) == [("SCRAM-SHA-512", "carol")]
    assert users.find("SCRAM-SHA-512", "carol") == ScramCredential(b"s", b"a", b"b", 8192)


def acl(**changes: Any) -> records.AccessControlEntryRecord:
    fields = {
        "id": bytes(16), "resource_type": 2, "resource_name": "orders", "pattern_type": 3,
        "principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    return records.AccessControlEntryRecord(**{**fields, **changes})


def test_acls_are_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = kafkas(tmp_path, [
        acl(),
        acl(id=ORDERS, principal="User:removed"),
        records.RemoveAccessControlEntryRecord(id=ORDERS),
        acl(id=PRICES, resource_type=4, resource_name="kafka-cluster", permission_type=2),
    ])  # fmt: skip
    assert adopt(source, force=False, dry_run=False) == 0
    report = " ".join(capsys.readouterr().out.split())
    assert "2 ACLs for User:alice" in report and "removed" not in report
    assert "ACLs take effect where authorizer.class.name is set" in report
    assert sorted(map(str, map(from_row, stored(tmp_path).security[SecurityKind.ACL]))) == [
        "StandardAcl[resourceType=CLUSTER, resourceName=kafka-cluster, patternType=LITERAL, "
        "principal=User:alice, host=*, operation=READ, permissionType=DENY]",
        "StandardAcl[resourceType=TOPIC, resourceName=orders, patternType=LITERAL, "
        "principal=User:alice, host=*, operation=READ, permissionType=ALLOW]",
    ]


@pytest.mark.parametrize(
    "strange",
    [{"operation": 99}, {"resource_type": 99}, {"permission_type": 9}, {"pattern_type": 1}],
)
def test_an_acl_of_a_later_kafka_is_in_the_way(
    tmp_path: Path, strange: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    source = kafkas(tmp_path, [acl(), acl(id=ORDERS, principal="User:bob", **strange)])
    assert adopt(source, force=False, dry_run=False) == 1
    report = " ".join(capsys.readouterr().out.split())
    assert "the ACL for User:bob on 'orders' has a code that Odradek does not know" in report
    assert adopt(source, force=True, dry_run=False) == 0
    (row,) = stored(tmp_path).security[SecurityKind.ACL]
    assert from_row(row).principal == "User:alice"


MISPLACED: dict[str, tuple[list[object], str]] = {
    "elsewhere": (
        topic("orders", ORDERS, [NODE_ID], [4, 5]),
        "partition 1 is only on brokers 4, 5",
    ),
    "behind": (
        topic("orders", ORDERS, [NODE_ID, 4], isr=[4]),
        "partition 0 lags behind here; broker 4 has all of it",
    ),
    "in a directory that was not named": (
        topic("orders", ORDERS, [NODE_ID], [NODE_ID], directories=[PRICES]),
        f"partition 1 is in another log directory, of id {encode_uuid(PRICES)}",
    ),
    "of an older topic": (
        topic("orders", PRICES, [NODE_ID]),
        "belongs to an older topic of that name",
    ),
    "with a setting that is none": (
        [*topic("orders", ORDERS, [NODE_ID]), of_topic("retention.ms", "soon")],
        "setting retention.ms is not accepted: ",
    ),
    "with an unknown setting": (
        [*topic("orders", ORDERS, [NODE_ID]), of_topic("no.such", "1")],
        "setting no.such is not accepted: ",
    ),
    "in remote storage": (
        [*topic("orders", ORDERS, [NODE_ID]), of_topic("remote.storage.enable", "true")],
        "records in remote storage cannot be read here",
    ),
    "under a name that leads elsewhere": (
        topic("../orders", ORDERS, [NODE_ID]),
        "Topic name is invalid: '../orders' contains",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("log", "words"), MISPLACED.values(), ids=MISPLACED.keys())
def test_obstacles_stop_the_adoption_unless_it_is_forced(
    tmp_path: Path, log: list[object], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = topic("prices", bytes(reversed(ORDERS)), [NODE_ID])
    source = kafkas(tmp_path, [*prices, *log], ("orders", 0, ORDERS))
    before = digests(tmp_path)
    assert adopt(source, force=False, dry_run=False) == 1
    assert words in capsys.readouterr().out
    assert digests(tmp_path) == before
    assert adopt(source, force=True, dry_run=False) == 0
    metadata = stored(tmp_path)
    names = [one.name for one in metadata.topics]
    assert "prices" in names
    assert "../orders" not in names
    assert Resource(ResourceType.TOPIC, "orders") not in metadata.configs


@pytest.mark.parametrize(
    "state",
    [
        {"isr": [], "eligible_leader_replicas": [NODE_ID]},
        {"isr": [], "last_known_elr": [NODE_ID]},
        {"isr": [NODE_ID]},
    ],
)
def test_a_replica_that_was_the_last_to_stop_is_whole(
    tmp_path: Path, state: dict[str, list[int]]
) -> None:
    log = topic("orders", ORDERS, [NODE_ID, 4], **state)
    source = kafkas(tmp_path, log, ("orders", 0, ORDERS))
    assert prepare(FS, source).plan.obstacles == []


def test_the_second_adoption_finds_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = kafkas(tmp_path, topic("orders", ORDERS, [NODE_ID]), ("orders", 0, ORDERS))
    assert adopt(source, force=False, dry_run=False) == 0
    adopted = digests(tmp_path)
    assert adopt(source, force=True, dry_run=False) == 0
    assert "adopted already" in capsys.readouterr().out
    assert digests(tmp_path) == adopted


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    source = kafkas(tmp_path, topic("orders", ORDERS, [NODE_ID]), ("orders", 0, ORDERS))
    before = digests(tmp_path)
    assert adopt(source, force=False, dry_run=True) == 0
    assert digests(tmp_path) == before


def test_data_in_use_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = kafkas(tmp_path, topic("orders", ORDERS, [NODE_ID]), ("orders", 0, ORDERS))
    held = FS.lock(tmp_path / ".lock")
    assert adopt(source, force=True, dry_run=False) == 1
    assert "in use by another process" in capsys.readouterr().err
    assert not (tmp_path / DATABASE_NAME).exists()
    del held


class PowerCut(Exception):
    """The machine stops here."""


class FailingFileSystem(RealFileSystem):
    """The real one, which stops before one of the operations that change something."""

    def __init__(self, operations: int) -> None:
        super().__init__()
        self.left = operations

    def _count(self) -> None:
        if self.left == 0:
            raise PowerCut
        self.left -= 1

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)

    def write_bytes(self, path: Path, data: bytes) -> None:
        self._count()
        super().write_bytes(path, data)

    def sync_directory(self, path: Path) -> None:
        self._count()
        super().sync_directory(path)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)


@pytest.mark.slow
def test_a_crash_anywhere_leaves_the_data_to_kafka_and_to_the_next_attempt(
    tmp_path: Path,
) -> None:
    adopted_at = None
    for operations in range(30):
        path = tmp_path / str(operations)
        log = [*topic("orders", ORDERS, [NODE_ID]), of_topic("retention.ms", "1000")]
        source = kafkas(path, log, ("orders", 0, ORDERS))
        before = digests(path)
        fs = FailingFileSystem(operations)
        try:
            asyncio.run(carry_out(fs, prepare(fs, source)))
            break
        except PowerCut:
            assert before.items() <= digests(path).items()
        if (path / DATABASE_NAME).exists():
            adopted_at = operations
        assert adopt(source, force=False, dry_run=False) == 0
        assert [one.name for one in stored(path).topics] == ["orders"]
        assert not list(path.glob("*.tmp"))
    assert fs.left < 30 - 1 and adopted_at == operations - 1, "the database comes last"


def test_without_metadata_topics_keep_their_ids_and_all_their_records(tmp_path: Path) -> None:
    source = kafkas(tmp_path, [], ("orders", 0, ORDERS), ("orders", 1, ORDERS),
                    ("__consumer_offsets", 0, PRICES))  # fmt: skip
    assert adopt(source, force=False, dry_run=False) == 1
    assert adopt(replace(source, without_metadata=True), force=False, dry_run=False) == 0
    metadata = stored(tmp_path)
    assert {one.name: (one.topic_id, one.partition_count) for one in metadata.topics} == {
        "orders": (ORDERS, 2),
        "__consumer_offsets": (PRICES, 1),
    }
    configs = {owner.name: values["cleanup.policy"] for owner, values in metadata.configs.items()}
    assert configs == {"orders": "", "__consumer_offsets": "compact"}


def test_the_metadata_may_be_elsewhere(tmp_path: Path) -> None:
    log = topic("orders", ORDERS, [NODE_ID], [NODE_ID], directories=[])
    kafkas(tmp_path / "metadata", log)
    kafkas(tmp_path / "one", [], ("orders", 0, ORDERS))
    kafkas(tmp_path / "two", [], ("orders", 1, ORDERS))
    source = Source((tmp_path / "one", tmp_path / "two"))
    assert adopt(source, force=False, dry_run=False) == 1
    there = replace(source, metadata=tmp_path / "metadata")
    assert adopt(there, force=False, dry_run=False) == 0
    assert [one.partition_count for one in stored(tmp_path / "one").topics] == [2]


Spoil = Callable[[Path], object]
SPOILT: dict[str, tuple[Spoil, str]] = {
    "no properties": (lambda path: (path / "meta.properties").unlink(), "is not a log directory"),
    "an empty one": (lambda path: (path / "meta.properties").write_text(""), "has no cluster.id"),
    "no metadata": (
        lambda path: (path / "__cluster_metadata-0" / f"{0:020d}.log").unlink(),
        "neither a log nor a snapshot",
    ),
}


@pytest.mark.parametrize(("spoil", "words"), SPOILT.values(), ids=SPOILT.keys())
def test_a_directory_without_kafkas_files_is_refused(
    tmp_path: Path, spoil: Spoil, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = kafkas(tmp_path, topic("orders", ORDERS, [NODE_ID]), ("orders", 0, ORDERS))
    spoil(tmp_path)
    assert adopt(source, force=True, dry_run=False) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / DATABASE_NAME).exists()


@on_uvloop
async def test_the_broker_goes_on_with_the_node_id_and_a_newer_leader_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    source = kafkas(data, topic("orders", ORDERS, [NODE_ID]), ("orders", 0, ORDERS))
    await carry_out(FS, prepare(FS, source))
    async with live(tmp_path) as broker, client(broker):
        assert broker.node_id == NODE_ID
        orders = broker.topics.get("orders")
        assert orders is not None
        (log,) = orders.partitions
        assert (log.log_end_offset, log.leader_epoch) == (3, 5)
    async with live(tmp_path) as broker:
        orders = broker.topics.get("orders")
        assert orders is not None
        assert orders.partitions[0].leader_epoch == 5
    assert not (data / "odradek-adopted-epoch-checkpoint").exists()
    assert "belongs to no topic" not in caplog.text
