"""Every client of another language creates, produces, consumes in a group, and administers.

Run by `make interop`, which builds the programs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from tests.broker.clusters import BesiegedBrokers
from tests.compat.clients import CODECS
from tests.compat.test_clients import check_round
from tests.interop.conftest import KIND, Broker, StartBroker
from tests.interop.programs import (
    PROGRAMS,
    TIMEOUT_S,
    Admin,
    Arrived,
    Member,
    Program,
    Record,
    RefusedByClient,
    UnsupportedByClient,
    wait_for_members,
)
from tests.support.waiting import wait_until

PARTITIONS = 4
KEYS = 17
RECORDS = 60  # a batch
COUNT = 2_000  # with each codec
# An hour ago: what is older than retention.ms is deleted before it is read.
TIME_MS = time.time_ns() // 1_000_000 - 3_600_000

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    """Each client, where it can be run."""
    found: Program = request.param
    absent = found.why_absent()
    if absent:
        pytest.skip(absent)
    return found


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    """A broker whose new topics have some partitions."""
    return start_broker({"num.partitions": str(PARTITIONS)})


def test_a_client_sees_thousands_of_records_once_and_in_order(
    broker: Broker, program: Program
) -> None:
    check_round(broker, program, COUNT)


def test_members_of_a_group_share_what_arrives_through_rebalances_and_a_restart(
    broker: Broker, program: Program
) -> None:
    topic, group, bootstrap = "shared", "sharing", broker.bootstrap
    everything = frozenset(range(PARTITIONS))
    program.create_topic(bootstrap, topic, PARTITIONS)
    batches = [_records(codec, n * RECORDS) for n, codec in enumerate(CODECS)]
    sent = iter(zip(CODECS, batches, strict=True))

    def send_and_wait(members: Sequence[Member], so_far: int) -> None:
        codec, records = next(sent)
        program.send(bootstrap, topic, codec, records)
        wait_for_members(lambda: sum(len(one.arrived) for one in members) >= so_far, members)

    with (
        program.member(bootstrap, topic, group) as first,
        program.member(bootstrap, topic, group) as second,
    ):
        both = (first, second)
        # Both start at once, the hardest case: one leads, and the other makes it begin again.
        wait_for_members(lambda: _share(both, everything), both)
        send_and_wait(both, RECORDS)
        with program.admin(bootstrap) as admin:
            assert admin.ask("describe-group", group) == {"state": "Stable", "members": 2}
        broker.stop()
        broker.start()
        send_and_wait(both, 2 * RECORDS)
        second.leave()
        wait_for_members(lambda: first.assigned == everything, both)
        send_and_wait(both, 3 * RECORDS)
        with program.member(bootstrap, topic, group) as third:
            three = (first, second, third)
            wait_for_members(lambda: _share((first, third), everything), three)
            send_and_wait(three, 4 * RECORDS)
            first.leave()
            wait_for_members(lambda: third.assigned == everything, three)
            send_and_wait(three, 5 * RECORDS)
            third.leave()
            arrived = [one for member in three for one in member.arrived]
    if KIND is BesiegedBrokers:  # what a member could not commit comes again
        arrived = list({(one.partition, one.offset): one for one in arrived}.values())
    _check_arrived([record for records in batches for record in records], arrived)
    with program.admin(bootstrap) as admin:
        ends = _ends(arrived)
        assert _unless_lacking(program, admin, "group-offsets", group, topic) in (ends, None)


def test_an_administrator_gets_what_was_asked_for(broker: Broker, program: Program) -> None:
    topic, group, bootstrap = "administered", "administered-group", broker.bootstrap
    with program.admin(bootstrap) as admin:
        _check_cluster_and_topics(program, admin, broker, topic)
        program.send(bootstrap, topic, "lz4", _records("lz4", 0))
        seen = program.consume(bootstrap, topic, group, RECORDS)
        _check_groups(program, admin, topic, group)
        first = min(one.offset for one in seen if one.partition == seen[0].partition)
        assert first == 0
        _unless_lacking(program, admin, "delete-records", topic, seen[0].partition, 2)
        left = len(seen) if "delete-records" in program.lacks else len(seen) - 2
        program.send(bootstrap, topic, "none", _records("none", 0))
        again = program.consume(bootstrap, topic, "another-group", left + RECORDS)
        start = min(one.offset for one in again if one.partition == seen[0].partition)
        assert start == (0 if "delete-records" in program.lacks else 2)
        admin.ask("delete-topic", topic)
        _until(lambda: topic not in admin.ask("list-topics"))
        with pytest.raises(RefusedByClient):
            admin.ask("delete-topic", topic)


def _check_cluster_and_topics(
    program: Program, admin: Admin, broker: Broker, topic: str
) -> None:
    cluster = _unless_lacking(program, admin, "describe-cluster")
    if cluster is not None:
        nodes = {node: (host, port) for node, host, port in cluster["brokers"]}
        assert ("127.0.0.1", broker.port) in nodes.values()
        assert cluster.get("controller", next(iter(nodes))) in nodes
        # An id is 16 bytes in URL-safe base64 without padding.
        assert len(cluster.get("cluster_id", 22 * "?")) == 22
    admin.ask("create-topic", topic, 2, {"retention.ms": "3600000"})
    _until(lambda: topic in admin.ask("list-topics"))
    with pytest.raises(RefusedByClient, match=r"(?i)exist"):
        admin.ask("create-topic", topic, 2, {})
    _until(lambda: admin.ask("describe-topic", topic) == 2)

    def has_configs(retention_ms: str, **others: str) -> bool:
        found = admin.ask("describe-configs", topic)
        wanted = {"retention.ms": retention_ms, **others}
        return wanted.items() <= found.items()

    if "describe-configs" in program.lacks:
        _unless_lacking(program, admin, "describe-configs", topic)
    else:
        _until(lambda: has_configs("3600000"))
    if "alter-configs" not in program.lacks:
        admin.ask("alter-configs", topic, {"retention.ms": None, "max.message.bytes": "77777"})
        _until(lambda: has_configs("604800000", **{"max.message.bytes": "77777"}))
        with pytest.raises(RefusedByClient):
            admin.ask("alter-configs", topic, {"retention.ms": "soon"})
    else:
        with pytest.raises(UnsupportedByClient):
            admin.ask("alter-configs", topic, {})
    _unless_lacking(program, admin, "create-partitions", topic, PARTITIONS)
    if "create-partitions" not in program.lacks:
        _until(lambda: admin.ask("describe-topic", topic) == PARTITIONS)
        with pytest.raises(RefusedByClient):
            admin.ask("create-partitions", topic, 1)


def _check_groups(program: Program, admin: Admin, topic: str, group: str) -> None:
    assert group in admin.ask("list-groups")
    assert admin.ask("describe-group", group) == {"state": "Empty", "members": 0}
    offsets = _unless_lacking(program, admin, "group-offsets", group, topic)
    assert offsets is None or sum(offset for _, offset in offsets) == RECORDS
    admin.ask("delete-group", group)
    assert group not in admin.ask("list-groups")
    with pytest.raises(RefusedByClient):
        admin.ask("delete-group", group)


def _unless_lacking(program: Program, admin: Admin, *request: object) -> Any:
    """Return the answer, None where the library is known to have no call for it."""
    if request[0] not in program.lacks:
        return admin.ask(*request)
    with pytest.raises(UnsupportedByClient):
        admin.ask(*request)
    return None


def _until(condition: Any) -> None:
    """Wait for a change that brokers, each asked in its turn, may know a moment later."""
    refusals: list[RefusedByClient] = []

    def holds() -> bool:
        try:
            return bool(condition())
        except RefusedByClient as error:  # by a broker that does not know the topic yet
            refusals.append(error)
            return False

    what = "all brokers know the change"
    wait_until(holds, what, TIMEOUT_S, shown=lambda: str(refusals[-1:]))


def _records(codec: str, first: int) -> list[Record]:
    """Records with all that a record may have; each seventh is a tombstone."""
    return [
        Record(
            f"k{n % KEYS}",
            None if n % 7 == 0 else f"{codec}-{n}-ü",
            (("n", str(n)), ("n", "twice"), ("empty", "")),
            TIME_MS + n,
        )
        for n in range(first, first + RECORDS)
    ]


def _share(members: Sequence[Member], partitions: frozenset[int]) -> bool:
    """Return whether members have all partitions, each one's once, and nobody nothing."""
    parts = [member.assigned for member in members]
    return (
        all(parts)
        and frozenset().union(*(part or () for part in parts)) == partitions
        and sum(len(part or ()) for part in parts) == len(partitions)
    )


def _check_arrived(sent: Sequence[Record], arrived: Sequence[Arrived]) -> None:
    """Every record once, as it was sent, without a gap, each key's in order."""
    by_partition: dict[int, list[Arrived]] = defaultdict(list)
    for one in arrived:
        by_partition[one.partition].append(one)
    by_key: dict[str | None, list[Record]] = defaultdict(list)
    for found in by_partition.values():
        found.sort(key=lambda one: one.offset)
        assert [one.offset for one in found] == list(range(len(found)))
        for one in found:
            by_key[one.record.key].append(one.record)
    for key, in_order in by_key.items():
        assert in_order == [record for record in sent if record.key == key]
    assert len(arrived) == len(sent)


def _ends(arrived: Sequence[Arrived]) -> list[list[int]]:
    ends: dict[int, int] = {}
    for one in arrived:
        ends[one.partition] = max(ends.get(one.partition, 0), one.offset + 1)
    return [[partition, ends[partition]] for partition in sorted(ends)]
