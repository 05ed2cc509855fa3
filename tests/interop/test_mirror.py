"""MirrorMaker moves a cluster to another: topics, their settings, records, and how far groups are.

Kafka's own way to move away from a broker, or to it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.compat.clients import CODECS, Confluent, Seen
from tests.interop.conftest import StartBroker
from tests.interop.jvm import log_text, run_with_settings, skip_without_java
from tests.support.waiting import wait_until

MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
TOPIC, GROUP = "mirrored", "mirrored-group"
PARTITIONS, COUNT, CONSUMED = 3, 50, 120  # COUNT with each codec
TIMEOUT_S = 180.0
SETTINGS = {
    "clusters": "old,new",
    "old->new.enabled": "true",
    "old->new.topics": TOPIC,
    "old->new.groups": GROUP,
    # Names stay as they are; the other way is not mirrored.
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "new->old.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "offset.lag.max": "0",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "dedicated.mode.enable.internal.rest": "false",
}

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def test_a_group_goes_on_at_the_new_cluster(start_broker: StartBroker, tmp_path: Path) -> None:
    skip_without_java()
    old, new = start_broker(), start_broker()
    client, admin = Confluent(), AdminClient({"bootstrap.servers": old.bootstrap})
    settings = {"cleanup.policy": "compact", "retention.ms": "77777777"}
    created = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=settings)])
    created[TOPIC].result()
    for codec in CODECS:
        entries = [(f"{codec}-{n}", f"value-{n}") for n in range(COUNT)]
        client.produce(old.bootstrap, TOPIC, codec, entries)
    client.consume(old.bootstrap, TOPIC, GROUP, CONSUMED)
    clusters = {"old.bootstrap.servers": old.bootstrap, "new.bootstrap.servers": new.bootstrap}
    mirror = run_with_settings(MAIN, {**SETTINGS, **clusters}, tmp_path / "mirror")
    try:
        there = AdminClient({"bootstrap.servers": new.bootstrap})
        wait_until(
            lambda: _has_moved(there),
            "the group has moved",
            TIMEOUT_S,
            shown=lambda: log_text(tmp_path / "mirror"),
        )
        everything = client.consume(new.bootstrap, TOPIC, "all", len(CODECS) * COUNT)
    finally:
        mirror.kill()
        mirror.wait()
    wanted = client.consume(old.bootstrap, TOPIC, "all", len(CODECS) * COUNT)
    assert _in_order(everything) == _in_order(wanted)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    configs = there.describe_configs([resource])[resource].result()
    assert {name: configs[name].value for name in settings} == settings
    # The group goes on no later than it was; earlier it may, for not every offset is kept in step.
    done, reached = _committed(there), _committed(admin)
    assert all(offset <= reached[partition] for partition, offset in done.items())
    rest = client.consume(new.bootstrap, TOPIC, GROUP, len(wanted) - sum(done.values()))
    assert sorted((s.partition, s.offset) for s in rest) == sorted(
        (s.partition, s.offset) for s in wanted if s.offset >= done.get(s.partition, 0)
    )


def _has_moved(admin: AdminClient) -> bool:
    """Return whether the group is anywhere; until it is known it has no coordinator to ask."""
    known = {group.group_id for group in admin.list_consumer_groups().result().valid}
    return GROUP in known and any(_committed(admin).values())


def _committed(admin: AdminClient) -> dict[int, int]:
    """Return where the group is in each partition of the topic."""
    asked = [ConsumerGroupTopicPartitions(GROUP)]
    found = admin.list_consumer_group_offsets(asked)[GROUP].result().topic_partitions
    return {place.partition: place.offset for place in found}


def _in_order(seen: list[Seen]) -> list[tuple[int, int, str, str]]:
    return sorted((s.partition, s.offset, s.key, s.value) for s in seen)
