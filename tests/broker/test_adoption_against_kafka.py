"""A data directory of Apache Kafka's, adopted: whoever was its client sees no difference."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AdminClient,
)
from confluent_kafka.admin import (
    AclOperation as Do,
)
from confluent_kafka.admin import (
    AclPermissionType as Permission,
)
from confluent_kafka.admin import (
    ResourcePatternType as Pattern,
)
from confluent_kafka.admin import (
    ResourceType as ResourceKind,
)

from bench.processes import ROOT, KafkaProcess, OdradekProcess, kafka_tool
from odradek.broker.adoption.image import ClusterImage
from odradek.broker.metadata.store import ResourceType
from odradek.config.acl import STANDARD_AUTHORIZER
from odradek.protocol.messages import snake_case
from odradek.protocol.wire import encode_uuid
from odradek.storage.directory import METADATA_DIRECTORY
from odradek.storage.kraft import MetadataLog
from odradek.storage.real_files import RealFileSystem
from tests.broker.moved_cluster import (
    CLEANED,
    KAFKA_SETTINGS,
    OFFSETS,
    PATIENCE_S,
    Seen,
    alter,
    cleaned_to,
    commit,
    digests,
    fill,
    read_all,
    reader,
    see,
)
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_until

NODE_ID = 3
AUTHORIZER = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
_PAYLOAD = re.compile(r"payload: (\{.*\})$")

pytestmark = pytest.mark.timeout(600)


@dataclass
class Move:
    """A cluster that was Kafka's and is Odradek's, and what was seen before and after."""

    odradek: OdradekProcess
    producer: Producer
    before: Seen
    before_committed: Seen
    after: Seen
    before_acls: set[AclBinding]
    after_acls: set[AclBinding]
    changed_files: set[str] = field(default_factory=set)
    while_running: subprocess.CompletedProcess[str] | None = None
    adoption: subprocess.CompletedProcess[str] | None = None


def adopt(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek.cli.main", "adopt", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, cwd=ROOT, check=False,
        env={"COLUMNS": "160", "PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("stopped", marks=pytest.mark.kafka),
        pytest.param("killed", marks=[pytest.mark.kafka, pytest.mark.interop]),
    ],
)
def move(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Move]:
    """Fill a Kafka, end it, adopt its data, and serve them on the same port."""
    folder = tmp_path_factory.mktemp(request.param)
    port = KafkaProcess(folder).controller_port
    kafka = KafkaProcess(
        folder,
        {
            **KAFKA_SETTINGS,
            **AUTHORIZER,
            "node.id": str(NODE_ID),
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{port}",
            **(SNAPSHOTS if request.param == "killed" else {}),
        },
        controller_port=port,
    )
    settings = {"log.cleaner.enable": "false", **AUTHORIZER}
    odradek = ForkedOdradek(folder, settings, port=kafka.port)
    try:
        kafka.start()
        fill(kafka.bootstrap, 20 if request.param == "stopped" else 2_000, NODE_ID)
        for topic in ("compacted", "both", OFFSETS):
            wait_until(lambda name=topic: cleaned_to(kafka.data, name) > 0, f"{topic} is cleaned")
        # No cleaning any more, so that the log stays as it is seen.
        alter(kafka.bootstrap, ResourceType.BROKER, "", {"log.cleaner.backoff.ms": "3600000"})
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True,
                             "log_level": 1})  # fmt: skip
        produce(producer, "before")
        before_committed = see(kafka.bootstrap, NODE_ID, "read_committed")
        give_rights(kafka.bootstrap)
        before = see(kafka.bootstrap, NODE_ID)
        before_acls = rights(kafka.bootstrap)
        while_running = adopt(kafka.data)
        if request.param == "stopped":
            kafka.stop()
        else:
            kafka.kill()
        files = digests(kafka.data)
        adoption = adopt(kafka.data)
        there = digests(kafka.data)
        changed = {name for name in {*files, *there} if files.get(name) != there.get(name)}
        assert adoption.returncode == 0, adoption.stderr
        odradek.start()
        after = see(odradek.bootstrap, NODE_ID)
        after_acls = rights(odradek.bootstrap)
        yield Move(
            odradek, producer, before, before_committed, after, before_acls, after_acls, changed,
            while_running, adoption,
        )  # fmt: skip
    finally:
        kafka.stop()
        odradek.stop()


def produce(producer: Producer, word: str) -> list[int]:
    """Produce a few records to one partition; return their offsets."""
    offsets: list[int] = []

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    for number in range(5):
        producer.produce("orders", f"{word} {number}", "live", 2, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return offsets


def give_rights(bootstrap: str) -> None:
    """Create ACLs, and delete one of them again."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = [
        AclBinding(kind, name, pattern, f"User:{who}", host, operation, permission)
        for who in ("ann", "bob")
        for kind, name, pattern, host, operation, permission in (
            (ResourceKind.TOPIC, "orders", Pattern.LITERAL, "*", Do.READ, Permission.ALLOW),
            (ResourceKind.TOPIC, "o", Pattern.PREFIXED, "10.0.0.7", Do.ALL, Permission.DENY),
            (ResourceKind.GROUP, "*", Pattern.LITERAL, "*", Do.DESCRIBE, Permission.ALLOW),
        )
    ]
    for future in admin.create_acls(made).values():
        future.result()
    for future in admin.delete_acls([_which(ResourceKind.GROUP, "User:bob")]).values():
        assert len(future.result()) == 1


def rights(bootstrap: str) -> set[AclBinding]:
    """Return all ACLs."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return set(admin.describe_acls(_which(ResourceKind.ANY, None)).result())


def _which(kind: ResourceKind, who: str | None) -> AclBindingFilter:
    return AclBindingFilter(kind, None, Pattern.ANY, who, None, Do.ANY, Permission.ANY)


def test_access_control_lists_are_the_same(move: Move) -> None:
    assert len(move.before_acls) == 5
    assert move.after_acls == move.before_acls
    assert "5 ACLs" in move.adoption.stdout


def test_a_running_kafka_is_left_alone(move: Move) -> None:
    assert move.while_running.returncode == 1
    assert "is in use by another process" in move.while_running.stderr


def test_adopting_changes_none_of_kafkas_files(move: Move) -> None:
    assert move.changed_files == {"odradek.db", "odradek-adopted-epoch-checkpoint"}


def test_the_adoption_lists_everything_taken_and_left_behind(move: Move) -> None:
    told = move.adoption.stdout
    assert all(name in told for name in move.before.topics)
    assert "committed offsets" in told
    assert "transaction.version=2" in told


def test_the_metadata_are_read_as_kafkas_own_tool_reads_them(move: Move, tmp_path: Path) -> None:
    (tmp_path / METADATA_DIRECTORY).mkdir()
    (log,) = (move.odradek.data / METADATA_DIRECTORY).glob("*.log")
    copied = shutil.copy(log, tmp_path / METADATA_DIRECTORY)
    dumped = kafka_tool([
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", copied
    ]).stdout  # fmt: skip
    payloads = [json.loads(found[1]) for found in map(_PAYLOAD.search, dumped.splitlines())
                if found]  # fmt: skip
    ours = [entry.message for entry in
            MetadataLog(RealFileSystem(), tmp_path / METADATA_DIRECTORY).read()]  # fmt: skip
    declared = {snake_case(type(one).__name__).upper() for one in ours}
    theirs = [one for one in payloads if one["type"] in declared]
    assert len(theirs) > 30
    assert [one["type"] for one in theirs] == [
        snake_case(type(one).__name__).upper() for one in ours
    ]
    for one, message in zip(theirs, ours, strict=True):
        for name, value in one["data"].items():
            assert as_json(getattr(message, snake_case(name))) == value, (one, message)


def as_json(value: Any) -> Any:
    """Put a field as Kafka's tool prints it."""
    if isinstance(value, bytes):
        return encode_uuid(value)
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if is_dataclass(value):
        return {
            camel_case(made.name): as_json(getattr(value, made.name)) for made in fields(value)
        }
    return value


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def test_a_snapshot_says_what_the_log_before_it_does(move: Move, tmp_path: Path) -> None:
    (tmp_path / METADATA_DIRECTORY).mkdir()
    whole = move.odradek.data / METADATA_DIRECTORY
    if not list(whole.glob("*.checkpoint")):
        pytest.skip("this Kafka made no snapshot")
    for log in whole.glob("*.log"):
        shutil.copy(log, tmp_path / METADATA_DIRECTORY)
    images = []
    for directory in (whole, tmp_path / METADATA_DIRECTORY):
        image = ClusterImage()
        image.apply(MetadataLog(RealFileSystem(), directory).read())
        for topic in image.topics.values():
            topic.created_ms = None  # which a snapshot does not know
        # What was taken away leaves nothing in a snapshot, and an empty place in a log.
        image.configs = {owner: settings for owner, settings in image.configs.items() if settings}
        images.append(image)
    assert images[0] == images[1]


def test_topics_keep_their_ids_and_partitions(move: Move) -> None:
    assert move.after.topics == move.before.topics


def test_topics_keep_their_settings(move: Move) -> None:
    assert move.before.configs["compacted"].items() >= CLEANED.items()
    assert move.after.configs == move.before.configs


def test_brokers_keep_their_dynamic_settings(move: Move) -> None:
    assert move.before.broker_configs["log.cleaner.io.buffer.size"] == "600000"
    assert move.after.broker_configs == move.before.broker_configs


def test_logs_begin_and_end_where_they_did(move: Move) -> None:
    assert move.after.ends == move.before.ends


def test_every_record_is_there_as_it_was(move: Move) -> None:
    assert sum(len(records) for records in move.before.records.values()) > 100
    for place, records in move.before.records.items():
        if place[0] != OFFSETS:
            assert move.after.records[place] == records, place


def test_compacted_topics_are_as_kafkas_cleaner_left_them(move: Move) -> None:
    for topic in ("compacted", "both", OFFSETS):
        (start, end), records = max(
            ((move.before.ends[place], records)
             for place, records in move.before.records.items() if place[0] == topic),
            key=lambda one: one[0][1],
        )  # fmt: skip
        assert len(records) < end - start, topic


def test_groups_go_on_from_where_they_were(move: Move) -> None:
    assert move.before.committed["readers"]["orders", 0] == (29, "note 29")
    plain = ("readers", "others")
    assert {g: move.after.committed[g] for g in plain} == {
        g: move.before.committed[g] for g in plain
    }


def test_readers_of_committed_records_see_what_they_saw(move: Move) -> None:
    seen = see(move.odradek.bootstrap, NODE_ID, "read_committed")
    transfers = [records for (topic, _), records in move.before_committed.records.items()
                 if topic == "transfers"]  # fmt: skip
    assert {value for records in transfers for _, _, _, value, _ in records} == {b"committed"}
    for place, records in move.before_committed.records.items():
        if place[0] not in (OFFSETS, "orders"):
            assert seen.records[place] == records, place


def test_offsets_of_transactions_are_those_that_were_committed(move: Move) -> None:
    assert move.before.committed["tellers"]["orders", 0][0] == 104
    assert move.after.committed["tellers"] == move.before.committed["tellers"]


def test_a_live_producer_goes_on(move: Move) -> None:
    end = move.before.ends["orders", 2][1]
    offsets = produce(move.producer, "after")
    assert offsets == list(range(end, end + 5))
    consumer = reader(move.odradek.bootstrap)
    (records,) = read_all(consumer, {("orders", 2): 0}).values()
    consumer.close()
    live = [value for _, _, key, value, _ in records if key == b"live"]
    assert live == [f"{word} {n}".encode() for word in ("before", "after") for n in range(5)]


def test_groups_commit_on_top(move: Move) -> None:
    commit(move.odradek.bootstrap, "readers", [("orders", 1, 4)])
    consumer = Consumer({"bootstrap.servers": move.odradek.bootstrap, "group.id": "readers"})
    found = consumer.committed([TopicPartition("orders", n) for n in (0, 1)], PATIENCE_S)
    consumer.close()
    assert [one.offset for one in found] == [29, 4]


def test_the_broker_has_nothing_to_complain_of(move: Move) -> None:
    log = move.odradek.log_text()
    assert "belongs to no topic" not in log
    assert "Traceback" not in log
    assert "damage" not in log
