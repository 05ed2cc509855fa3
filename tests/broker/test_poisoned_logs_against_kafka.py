"""Hostile records in internal topics, in Odradek and in Apache Kafka: what clients see of them.

The same bytes are put into the files of both while they are stopped. Each case has a partition of
its own, where sound records stand before what is hostile and after it. Where the two differ, a
list below says so; it may only shrink.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess, OdradekProcess
from odradek.broker.orders.java import partition_for
from odradek.broker.topics import names as topic_names
from odradek.protocol.batches import read_header
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import initialize_share_group_state as initializing
from odradek.protocol.messages import read_share_group_state as reading
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.protocol.wire import encode_uuid
from tests.broker.kafka_peer import Peer, both_brokers
from tests.broker.poison import GROUP_CASES, LONG_MS, TOPIC, batch, offset
from tests.broker.poison_states import SHARE_CASES, TRANSACTION_CASES, snapshot, transaction
from tests.support.asking import await_coordinator, create_topics
from tests.support.requests import committing, creatable
from tests.support.waiting import last_answer, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(300)]

SETTINGS = {
    "offsets.topic.num.partitions": str(len(GROUP_CASES)),
    "transaction.state.log.num.partitions": str(len(TRANSACTION_CASES)),
    "share.coordinator.state.topic.num.partitions": str(len(SHARE_CASES)),
    "share.coordinator.append.linger.ms": "0",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    # Members of loaded groups stay.
    "group.consumer.max.session.timeout.ms": str(LONG_MS),
    "group.consumer.session.timeout.ms": str(LONG_MS),
}
_COMMITTED = 3  # a partition whose offset is committed here
CLEAN_MARKER = ".kafka_cleanshutdown"
BUSY_S = 20.0
_NOT_READY = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)

# --- where they differ ---------------------------------------------------------------------------

# Kafka's coordinator of the partition fails for good, and answers NOT_COORDINATOR: ours loads the
# rest.
NOT_LOADED: Mapping[str, Sequence[str]] = {
    "group": (
        "a null key",
        "an empty key",
        "a key cut off",
        "a key with a negative size",
        "a key of a transaction",
        "a value of an unknown version",
        "a value of a negative version",
        "an empty value",
        "a value cut off",
        "a value with a negative size",
        "more records claimed than there are",
        # Of one id there are two groups of different kinds: ours takes the later one.
        "a consumer group that was classic",
        "a consumer group that was empty",
        "a share group",
        "a share group that was classic",
        "a share group that turns into a consumer group",
    ),
    "share": (
        "a null key",
        "an empty key",
        "a key cut off",
        "a value of an unknown version",
        "a value cut off",
    ),
}
# Kafka serves the partition without the transactional ids behind it: ours has them all.
CUT_OFF = (
    "a null key",
    "an empty key",
    "a key cut off",
    "an empty value",
    "a value cut off",
    "an impossible state",
    "an open one with null partitions",
    "more records claimed than there are",
    "a marker",
)
OTHERS: Mapping[tuple[str, str], str] = {
    ("group", "members of one id"): "Kafka has such a group, which can choose no protocol again",
    ("group", "a group without a protocol"): "Kafka fails to describe it",
    ("transaction", "a prepared one without partitions"): "in Kafka it never ends",
    ("share", "a batch that ends before it begins"): "here, to combine it would never end",
}
SOUND = [(0, 10, 0), (1, 20, 0)]


class Side:
    """One of the brokers: what its cases are about, and what clients see."""

    def __init__(self, process: OdradekProcess | KafkaProcess) -> None:
        self.process = process
        self.topic_id = bytes(16)
        self.names: dict[tuple[str, str], tuple[str, str]] = {}

    def prepare(self) -> None:
        """Have the internal topics made, and choose the names."""
        with Peer(self.process.port) as peer:
            self.topic_id = create_topics(peer, creatable(TOPIC, 10))[TOPIC]
            uuid = encode_uuid(self.topic_id)
            for key_type, key in enumerate(("warm", "warm", f"warm:{uuid}:0")):
                await_coordinator(peer, key_type, key)
            wait_until(lambda: not _commit(peer, "warm"))
            wait_until(lambda: not _begin(peer, "warm")[0])
            wait_until(lambda: not self._initialize(peer, "warm"))
        for kind, cases in CASES.items():
            for at, case in enumerate(cases):
                tail = f":{uuid}:0" if kind == "share" else ""
                self.names[kind, case] = _named(tail, at, len(cases))

    def _initialize(self, peer: Peer, group: str) -> int:
        partition = initializing.PartitionData(partition=0, state_epoch=0, start_offset=0)
        topic = initializing.InitializeStateData(topic_id=self.topic_id, partitions=[partition])
        request = initializing.InitializeShareGroupStateRequest(group_id=group, topics=[topic])
        code: int = peer.ask(request, 0).results[0].partitions[0].error_code
        return code

    def poison(self) -> None:
        """Write all cases into the files."""
        data = self.process.data
        (data / CLEAN_MARKER).unlink()  # what lies there is looked at
        for at, (case, make) in enumerate(GROUP_CASES.items()):
            group, _ = self.names["group", case]
            batches = [batch(offset(group, 0, 10)), *make(group), batch(offset(group, 1, 20))]
            _append(data, topic_names.CONSUMER_OFFSETS, at, batches)
        for at, (case, make) in enumerate(TRANSACTION_CASES.items()):
            name, after = self.names["transaction", case]
            batches = [batch(transaction(name)), *make(name), batch(transaction(after))]
            _append(data, topic_names.TRANSACTION_STATE, at, batches)
        for at, (case, make_share) in enumerate(SHARE_CASES.items()):
            name, after = self.names["share", case]
            hostile = make_share(name, self.topic_id)
            first, last = (batch(snapshot(one, self.topic_id)) for one in (name, after))
            _append(data, topic_names.SHARE_GROUP_STATE, at, [first, *hostile, last])

    def see(self, peer: Peer, kind: str, case: str) -> Any:
        """Return what a client sees of a case."""
        names = self.names[kind, case]
        if kind == "group":
            return _group(peer, names[0])
        if kind == "transaction":
            return [_transaction(peer, one) for one in names]
        return [self._state(peer, one) for one in names]

    def code(self, peer: Peer, kind: str, case: str) -> int:
        """Return the error with which the coordinator of a case answers."""
        name, _ = self.names[kind, case]
        if kind == "group":
            return _fetched(peer, name, is_stable=False)[0]
        if kind == "transaction":
            return _transaction(peer, name)[0]
        return self._state(peer, name)[0]

    def _state(self, peer: Peer, group: str) -> tuple[int, Any]:
        partition = reading.PartitionData(partition=0, leader_epoch=0)
        topic = reading.ReadStateData(topic_id=self.topic_id, partitions=[partition])
        request = reading.ReadShareGroupStateRequest(group_id=group, topics=[topic])
        told = peer.ask(request, 0).results[0].partitions[0]
        batches = [
            (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in told.state_batches
        ]
        return told.error_code, (told.state_epoch, told.start_offset, batches)


CASES: Mapping[str, Sequence[str]] = {
    "group": list(GROUP_CASES),
    "transaction": list(TRANSACTION_CASES),
    "share": list(SHARE_CASES),
}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with both_brokers(tmp_path_factory.mktemp("poison"), SETTINGS) as processes:
        both = Side(processes[0]), Side(processes[1])
        for side in both:
            side.prepare()
            side.process.stop()
            side.poison()
            side.process.start()
            with Peer(side.process.port) as peer:
                wait_until(lambda side=side, peer=peer: _is_loaded(side, peer))  # type: ignore[misc]
        yield both


def _is_loaded(side: Side, peer: Peer) -> bool:
    return not any(
        side.code(peer, kind, case) in _NOT_READY
        for kind, cases in CASES.items()
        for case in cases
        if case not in NOT_LOADED.get(kind, ())
    )


def _named(tail: str, partition: int, partition_count: int) -> tuple[str, str]:
    """Return two names whose keys, with a tail, are in a partition."""
    names = (f"case-{number}" for number in count())
    found = (one for one in names if partition_for(one + tail, partition_count) == partition)
    return next(found), next(found)


def _append(directory: Path, topic: str, partition: int, batches: Sequence[bytes]) -> None:
    """Append batches to the file of a partition, with the offsets that come next."""
    (path,) = directory.glob(f"{topic}-{partition}/*.log")
    data, position, end = path.read_bytes(), 0, 0
    while position < len(data):
        header = read_header(data, position)
        position, end = position + header.size_bytes, header.next_offset
    with path.open("ab") as file:
        for one in batches:
            made = bytearray(one)
            struct.pack_into(">q", made, 0, end)
            end = read_header(made).next_offset
            file.write(made)


@pytest.mark.parametrize("case", GROUP_CASES)
def test_groups_beside(sides: tuple[Side, Side], case: str) -> None:
    ours, theirs = seen(sides, "group", case)
    if case in NOT_LOADED["group"]:
        assert theirs["offsets"] == (ErrorCode.NOT_COORDINATOR, []), TAKE_OFF
        assert ours["offsets"] == ours["stable"] == (0, SOUND)
    else:
        check("group", case, ours, theirs)


@pytest.mark.parametrize("case", TRANSACTION_CASES)
def test_transactions_beside(sides: tuple[Side, Side], case: str) -> None:
    ours, theirs = seen(sides, "transaction", case)
    assert ours[1] == (0, ("Empty", (7_000, 3, LONG_MS), [], ["Empty"]))
    if case in CUT_OFF:
        assert theirs[1][0] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, TAKE_OFF
        assert ours[0] == ours[1]
        return
    check("transaction", case, ours, theirs)
    if ("transaction", case) not in OTHERS:
        name, _ = sides[0].names["transaction", case]
        begun = []
        for side in sides:
            with Peer(side.process.port) as peer:
                begun.append(_begin(peer, name))
        assert begun[0] == begun[1]


@pytest.mark.parametrize("case", SHARE_CASES)
def test_share_partitions_beside(sides: tuple[Side, Side], case: str) -> None:
    ours, theirs = seen(sides, "share", case)
    sound: Any = 0, (2, 10, [])
    assert ours[1] == sound
    if case in NOT_LOADED["share"]:
        assert {code for code, _ in theirs} == {ErrorCode.NOT_COORDINATOR}, TAKE_OFF
        assert ours[0] == sound
    else:
        check("share", case, ours, theirs)


TAKE_OFF = "there is no difference any more: take the case off the list"


def seen(sides: tuple[Side, Side], kind: str, case: str) -> list[Any]:
    """Return what clients see of a case, ours first."""
    found = []
    for side in sides:
        with Peer(side.process.port) as peer:
            found.append(side.see(peer, kind, case))
    return found


def check(kind: str, case: str, ours: Any, theirs: Any) -> None:
    """Compare, where a case is not on the list of differences."""
    if (kind, case) in OTHERS:
        assert ours != theirs, TAKE_OFF
    else:
        assert ours == theirs


# --- what clients see ----------------------------------------------------------------------------


def _group(peer: Peer, group: str) -> Any:
    describe = ConsumerGroupDescribeRequest(
        group_ids=[group], include_authorized_operations=False
    )
    classic = peer.ask(DescribeGroupsRequest(groups=[group]), 5).groups[0]
    consumer = peer.ask(describe, 1).groups[0]
    share_describe = ShareGroupDescribeRequest(
        group_ids=[group], include_authorized_operations=False
    )
    share = peer.ask(share_describe, 1).groups[0]
    return {
        "offsets": _fetched(peer, group, is_stable=False),
        "stable": _fetched(peer, group, is_stable=True),
        "classic": (classic.error_code, classic.group_state, classic.protocol_type,
                    classic.protocol_data, [one.member_id for one in classic.members]),
        "consumer": (consumer.error_code, consumer.group_state, consumer.group_epoch,
                     [(one.member_id, one.member_epoch) for one in consumer.members]),
        "share": (share.error_code, share.group_state, share.group_epoch),
        "listed": [
            (one.protocol_type, one.group_state, one.group_type)
            for one in peer.ask(ListGroupsRequest(), 5).groups
            if one.group_id == group
        ],
        "commit": _commit(peer, group),
    }  # fmt: skip


def _fetched(peer: Peer, group: str, *, is_stable: bool) -> tuple[int, Any]:
    asked = OffsetFetchRequestGroup(group_id=group, topics=None)
    told = peer.ask(OffsetFetchRequest(groups=[asked], require_stable=is_stable), 9).groups[0]
    return told.error_code, sorted(
        (one.partition_index, one.committed_offset, one.error_code)
        for topic in told.topics
        for one in topic.partitions
        if one.partition_index != _COMMITTED
    )


def _commit(peer: Peer, group: str) -> int:
    request = committing(group, {TOPIC: {_COMMITTED: 1}}, metadata=None)
    code: int = peer.ask(request, 9).topics[0].partitions[0].error_code
    return code


def _transaction(peer: Peer, name: str) -> tuple[int, Any]:
    request = DescribeTransactionsRequest(transactional_ids=[name])
    told = peer.ask(request, 0).transaction_states[0]
    listed = peer.ask(ListTransactionsRequest(), 0).transaction_states
    return told.error_code, (
        told.transaction_state,
        (told.producer_id, told.producer_epoch, told.transaction_timeout_ms),
        [(one.topic, one.partitions) for one in told.topics],
        [one.transaction_state for one in listed if one.transactional_id == name],
    )


def _begin(peer: Peer, name: str) -> tuple[int, int]:
    """Use a transactional id again once its transaction has ended; return code and epoch."""
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    # Kafka's broker may have to ask for producer ids first, too.
    busy = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    answer = last_answer(
        lambda: peer.ask(request, 4), lambda answer: answer.error_code not in busy, BUSY_S
    )
    return answer.error_code, answer.producer_epoch
