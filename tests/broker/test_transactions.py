"""Transactions over sockets, against a whole broker: what logs hold, and what is answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from odradek.broker.transactions.state import Producer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.storage.appended import Appended
from odradek.storage.errors import DiskFailure
from odradek.storage.log import Log
from odradek.storage.transactions import Marker
from tests.broker.live import batch, client, create, live, on_uvloop, until
from tests.broker.transacting import (
    OLD_END,
    OLD_PRODUCE,
    PRODUCE,
    VERIFIED_PRODUCE,
    Transactor,
    kinds,
    settled,
)
from tests.support.requests import producing

ONE_PARTITION = {"transaction.state.log.num.partitions": "1"}


@on_uvloop
async def test_the_coordinator_is_this_broker(tmp_path: Path) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["payments"])
        (found,) = (await one.ask(request, version=4)).coordinators
        assert (found.error_code, found.node_id) == (0, broker.node_id)


@on_uvloop
async def test_a_batch_adds_its_partition_and_each_end_raises_the_epoch(tmp_path: Path) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders", 2)
        producer = Transactor(one)
        assert await producer.init() is ErrorCode.NONE
        assert producer.epoch == 0
        for epoch, commit in enumerate((True, False, True), 1):
            assert await producer.produce("orders", 0, b"a", b"b") == 0
            assert await producer.produce("orders", 0, b"c") == 0
            assert await producer.produce("orders", 1, b"d") == 0
            assert await producer.end(commit=commit) == 0
            assert producer.epoch == epoch
            await settled(broker)
        ends = ["commit", "abort", "commit"]
        assert kinds(topic.partitions[0]) == [
            kind for end in ends for kind in ("data", "data", end)
        ]
        assert kinds(topic.partitions[1]) == [kind for end in ends for kind in ("data", end)]
        for log in topic.logs:
            assert log.last_stable_offset == log.log_end_offset


@on_uvloop
async def test_partitions_that_were_not_added_are_refused_to_old_producers(
    tmp_path: Path,
) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders", 2)
        producer = Transactor(one)
        await producer.init()
        for version, code in (
            (OLD_PRODUCE, ErrorCode.INVALID_TXN_STATE),
            (VERIFIED_PRODUCE, ErrorCode.TRANSACTION_ABORTABLE),
        ):
            producer.sequences.clear()
            assert await producer.produce("orders", 0, b"a", version=version) == code
        assert kinds(topic.partitions[0]) == []
        assert await producer.add("orders", 0) == [0]
        producer.sequences.clear()
        assert await producer.produce("orders", 0, b"a", version=OLD_PRODUCE) == 0
        assert await producer.end(commit=True, version=OLD_END) == 0
        assert (await settled(broker)).producer_epoch == 0
        assert kinds(topic.partitions[0]) == ["data", "commit"]


@on_uvloop
async def test_without_verification_any_partition_may_be_written_to(tmp_path: Path) -> None:
    settings = {**ONE_PARTITION, "transaction.partition.verification.enable": "false"}
    async with live(tmp_path, settings) as broker, client(broker) as one:
        await create(broker, "orders")
        producer = Transactor(one)
        await producer.init()
        assert await producer.produce("orders", 0, b"a", version=OLD_PRODUCE) == 0


@on_uvloop
async def test_a_transaction_without_partitions_can_be_aborted_but_not_committed(
    tmp_path: Path,
) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        producer = Transactor(one)
        await producer.init()
        assert await producer.end(commit=True) == ErrorCode.INVALID_TXN_STATE
        assert await producer.end(commit=False) == 0
        assert producer.epoch == 1
        assert (await settled(broker)).transaction_state == "CompleteAbort"
        assert await producer.end(commit=False, version=OLD_END) == 0
        assert await producer.end(commit=True, version=OLD_END) == ErrorCode.INVALID_TXN_STATE


@on_uvloop
async def test_a_new_producer_fences_the_old_one_and_aborts_for_it(tmp_path: Path) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        old, new = Transactor(one), Transactor(one)
        await old.init()
        assert await old.produce("orders", 0, b"a") == 0
        assert await new.init() is ErrorCode.CONCURRENT_TRANSACTIONS
        assert await new.init() is ErrorCode.NONE  # waits for the abort
        assert new.producer_id == old.producer_id and new.epoch == old.epoch + 2
        assert kinds(topic.partitions[0]) == ["data", "abort"]
        assert await old.produce("orders", 0, b"b") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.end(commit=True) == ErrorCode.PRODUCER_FENCED
        assert await old.end(commit=True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await new.produce("orders", 0, b"c") == 0
        assert await new.end(commit=True) == 0


@on_uvloop
async def test_a_transaction_that_takes_too_long_is_aborted(tmp_path: Path) -> None:
    settings = {
        **ONE_PARTITION,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10",
    }
    async with live(tmp_path, settings) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        producer = Transactor(one, timeout_ms=1)
        await producer.init()
        assert await producer.produce("orders", 0, b"a") == 0
        (log,) = topic.logs
        await until(lambda: kinds(log) == ["data", "abort"])
        await settled(broker)
        # It has the epoch before, as one that asks again for what was done.
        assert await producer.end(commit=True) == ErrorCode.INVALID_TXN_STATE
        assert await producer.produce("orders", 0, b"b") == ErrorCode.INVALID_PRODUCER_EPOCH


@on_uvloop
async def test_a_timeout_above_the_largest_one_is_refused(tmp_path: Path) -> None:
    settings = {**ONE_PARTITION, "transaction.max.timeout.ms": "1000"}
    async with live(tmp_path, settings) as broker, client(broker) as one:
        for timeout_ms, code in (
            (1_000, ErrorCode.NONE),
            (1_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ):
            assert await Transactor(one, timeout_ms=timeout_ms).init() is code


@on_uvloop
async def test_ids_that_are_not_used_are_forgotten(tmp_path: Path) -> None:
    settings = {
        **ONE_PARTITION,
        "transactional.id.expiration.ms": "1",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "10",
    }
    gone = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    async with live(tmp_path, settings) as broker, client(broker) as one:
        await Transactor(one).init()
        await until(lambda: broker.transactions.describe("payments").error_code == gone)
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        again = Transactor(one)
        assert await again.init() is ErrorCode.NONE
        assert again.epoch == 0


@on_uvloop
async def test_a_restart_knows_all_and_ends_what_was_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        await create(broker, "orders")
        open_one, prepared = Transactor(one, "open"), Transactor(one, "prepared")
        for producer in (open_one, prepared):
            await producer.init()
            assert await producer.produce("orders", 0, b"a") == 0

        def refuse(log: Log, marker: Marker) -> Appended:
            raise DiskFailure(log.directory, OSError("not now"))

        monkeypatch.setattr(Log, "append_marker", refuse)
        assert await prepared.end(commit=True) == 0
    monkeypatch.undo()
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = broker.topics.get("orders")
        assert topic is not None
        log = topic.logs[0]
        await until(lambda: kinds(log) == ["data", "data", "commit"])
        assert (await settled(broker, "prepared")).transaction_state == "CompleteCommit"
        open_one.client = one
        assert log.last_stable_offset == 0
        assert await open_one.produce("orders", 0, b"b") == 0
        assert await open_one.end(commit=False) == 0
        await settled(broker, "open")
        assert kinds(log) == ["data", "data", "commit", "data", "abort"]


@on_uvloop
async def test_markers_are_written_when_the_disk_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders", 2)
        producer = Transactor(one)
        await producer.init()
        for partition in (0, 1):
            assert await producer.produce("orders", partition, b"a") == 0
        append_marker = Log.append_marker
        is_refusing = True

        def refuse(log: Log, marker: Marker) -> Appended:
            if is_refusing and log.partition == 1:
                raise DiskFailure(log.directory, OSError("not now"))
            return append_marker(log, marker)

        monkeypatch.setattr(Log, "append_marker", refuse)
        assert await producer.end(commit=True) == 0
        await until(lambda: kinds(topic.logs[0]) == ["data", "commit"])
        # A request that comes meanwhile does not wait: its client sends it again.
        assert await producer.produce("orders", 0, b"b") == ErrorCode.CONCURRENT_TRANSACTIONS
        is_refusing = False
        await settled(broker)
        assert kinds(topic.logs[1]) == ["data", "commit"]


@on_uvloop
async def test_a_marker_that_is_refused_again_is_in_the_log_once_for_each_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        producer = Transactor(one)
        await producer.init()
        assert await producer.produce("orders", 0, b"a") == 0
        append_marker = Log.append_marker
        refused = Counter[str]()
        reason = "not now"

        def refuse(log: Log, marker: Marker) -> Appended:
            if not reason:
                return append_marker(log, marker)
            refused[reason] += 1
            raise DiskFailure(log.directory, OSError(reason))

        monkeypatch.setattr(Log, "append_marker", refuse)
        assert await producer.end(commit=True) == 0
        await until(lambda: refused["not now"] == 3)
        reason = "nor now"
        await until(lambda: refused["nor now"] == 3)
        reason = ""
        await settled(broker)
        assert kinds(topic.logs[0]) == ["data", "commit"]
    lines = [one.getMessage() for one in caplog.records if "will retry marker" in one.getMessage()]
    assert ["not now" in line for line in lines] == [True, False]


@on_uvloop
async def test_a_partition_that_is_deleted_holds_no_transaction_up(tmp_path: Path) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        kept, gone = await create(broker, "kept"), await create(broker, "gone")
        producer = Transactor(one)
        await producer.init()
        for name in ("kept", "gone"):
            producer.sequences.clear()
            assert await producer.produce(name, 0, b"a") == 0
        await broker.topics.delete([gone.topic_id])
        assert await producer.end(commit=True) == 0
        assert (await settled(broker)).transaction_state == "CompleteCommit"
        assert kinds(kept.logs[0]) == ["data", "commit"]


@on_uvloop
async def test_requests_keep_their_order_while_the_first_one_waits(tmp_path: Path) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders", 2)
        producer = Transactor(one)
        await producer.init()
        for _ in range(5):
            requests = [
                producer.request("orders", {number % 2: [b"%d" % number]}) for number in range(5)
            ]
            one.send(*requests, version=PRODUCE)
            for _ in requests:
                _, answer = await one.receive()
                assert answer.responses[0].partition_responses[0].error_code == 0
            assert await producer.end(commit=True) == 0
        await settled(broker)
        assert kinds(topic.logs[0]) == ["data", "data", "data", "commit"] * 5


@on_uvloop
async def test_no_batch_stands_in_for_one_that_was_refused(tmp_path: Path) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        producer = Transactor(one)
        await producer.init()
        code = await producer.produce("orders", 0, b"a", version=VERIFIED_PRODUCE)
        assert code == ErrorCode.TRANSACTION_ABORTABLE
        assert await producer.add("orders", 0) == [0]
        out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        code = await producer.produce("orders", 0, b"b", version=VERIFIED_PRODUCE)
        assert code == out_of_order
        # Nor may one that adds its partition by itself begin anywhere but at 0.
        assert await producer.produce("orders", 0, b"c") == out_of_order
        producer.sequences.clear()
        assert await producer.produce("orders", 0, b"a", b"b", version=VERIFIED_PRODUCE) == 0
        assert kinds(topic.logs[0]) == ["data"]


@on_uvloop
async def test_a_late_repetition_is_not_taken_for_the_first_batch(tmp_path: Path) -> None:
    """Its producer has the answer to another attempt, and begins the next transaction."""
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        producer = Transactor(one)
        await producer.init()
        for _ in range(2):
            await producer.add("orders", 0)
            assert await producer.produce("orders", 0, b"a", version=VERIFIED_PRODUCE) == 0
            assert await producer.end(commit=True, version=OLD_END) == 0
            await settled(broker)
            producer.sequences[0] -= 1
            late = await producer.produce("orders", 0, b"a", version=VERIFIED_PRODUCE)
            assert late in (ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
        assert kinds(topic.logs[0]) == ["data", "commit"] * 2


@on_uvloop
async def test_a_batch_does_not_outlive_a_transaction_that_ends_while_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        producer = Transactor(one)
        await producer.init()
        await producer.add("orders", 0)
        added: asyncio.Future[ErrorCode] = broker.loop.create_future()
        monkeypatch.setattr(broker.transactions, "add_partitions", lambda *_, **__: added)
        one.send(producer.request("orders", {0: [b"a"]}), version=PRODUCE)
        await until(lambda: topic.logs[0].producers.first_batches)
        me = Producer(producer.producer_id, producer.epoch)
        await broker.transactions.end(producer.name, me, is_commit=False, version=2)
        await settled(broker)
        added.set_result(ErrorCode.NONE)
        _, answer = await one.receive()
        (told,) = answer.responses[0].partition_responses
        assert told.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert kinds(topic.logs[0]) == ["abort"]


@on_uvloop
async def test_a_request_without_a_transactional_id_writes_nothing(tmp_path: Path) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders", 2)
        stranger = batch(
            b"a", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
        )
        request = producing("orders", {0: batch(b"plain"), 1: stranger})
        answer = await one.ask(request, version=PRODUCE)
        told = {one.error_code for one in answer.responses[0].partition_responses}
        assert told == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert kinds(topic.logs[0]) == kinds(topic.logs[1]) == []


@on_uvloop
async def test_an_administrator_ends_what_no_coordinator_knows(tmp_path: Path) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        (log,) = topic.logs
        hanging = batch(
            b"a", transactional=True, producer_id=7, producer_epoch=3, base_sequence=0
        )
        log.append(hanging, now_ms=1_000)
        marker = WritableTxnMarker(
            producer_id=7,
            producer_epoch=3,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 9])],
            coordinator_epoch=0,
        )
        answer = await one.ask(WriteTxnMarkersRequest(markers=[marker]), version=1)
        told = [one.error_code for one in answer.markers[0].topics[0].partitions]
        assert told == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert log.last_stable_offset == log.log_end_offset
        marker.producer_epoch = 2
        answer = await one.ask(WriteTxnMarkersRequest(markers=[marker]), version=2)
        (told_now, _) = [one.error_code for one in answer.markers[0].topics[0].partitions]
        assert told_now == ErrorCode.INVALID_PRODUCER_EPOCH


@on_uvloop
async def test_a_marker_of_no_producer_fails_the_request_whole_unless_nothing_it_names_is_there(
    tmp_path: Path,
) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        await create(broker, "orders")

        def marker(producer_id: int, name: str) -> WritableTxnMarker:
            return WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=0,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[0])],
                coordinator_epoch=0,
            )

        async def told(*markers: WritableTxnMarker) -> dict[int, int]:
            answer = await one.ask(WriteTxnMarkersRequest(markers=list(markers)), version=1)
            return {
                one.producer_id: one.topics[0].partitions[0].error_code for one in answer.markers
            }

        unknown, failed = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_SERVER_ERROR
        assert await told(marker(7, "orders"), marker(-1, "no")) == {7: 0, -1: unknown}
        assert await told(marker(7, "orders"), marker(-1, "orders"), marker(8, "no")) == {
            7: failed,
            -1: failed,
            8: failed,
        }


@on_uvloop
async def test_with_the_classic_transactions_an_abort_behind_a_producer_raises_its_epoch_once(
    tmp_path: Path,
) -> None:
    async with live(tmp_path, ONE_PARTITION) as broker, client(broker) as one:
        from odradek.broker.metadata.features import FeatureUpdate, UpgradeType

        for level in (1, 0):
            update = FeatureUpdate("transaction.version", level, UpgradeType.SAFE_DOWNGRADE)
            await broker.features.update([update], validate_only=False)
            await create(broker, f"orders-{level}")
            producer = Transactor(one, f"payments-{level}")
            await producer.init()
            await producer.add(f"orders-{level}", 0)
            assert await producer.init() is ErrorCode.CONCURRENT_TRANSACTIONS
            described = await settled(broker, f"payments-{level}")
            assert described.producer_epoch == 1
            assert await producer.init() is ErrorCode.NONE
            assert producer.epoch == 2


