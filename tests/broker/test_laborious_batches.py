"""Batches that a thread checks: in the order in which they came, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from odradek.broker.composition import Broker
from odradek.broker.context import ConnectedClient, RequestContext
from odradek.broker.produce.appending import Appending
from odradek.broker.produce.batch_checks import BatchChecks, Verdicts
from odradek.broker.security.principals import Principal
from odradek.broker.security.quotas.charge import Charge
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.storage.allowance import Allowance, BriefAllowance
from odradek.storage.errors import InvalidRecord
from odradek.storage.validation import CheckedBatch
from tests.broker.live import batch, client, create, live, on_uvloop, until
from tests.broker.test_produce import request, send, stored
from tests.broker.test_quotas import REQUEST, entity, quota
from tests.broker.transacting import END, PRODUCE, VERIFIED_PRODUCE, Transactor

ORDERS = ("orders", bytes(16))


@pytest.fixture(autouse=True)
def no_time_on_the_loop() -> Iterator[None]:
    """Have every batch be laborious."""
    with ExitStack() as stack:
        for kind in (Allowance, BriefAllowance):
            for name in ("_work_ns", "items"):
                stack.enter_context(mock.patch.object(kind, name, 0))
        yield


class Held:
    """Keeps the checks that are asked for until they are let go."""

    def __init__(self, checks: BatchChecks) -> None:
        self._checks = checks
        self.asked: list[asyncio.Event] = []
        self.clients: list[Hashable] = []

    def check(
        self, batches: Sequence[Any], now_ms: int, allowance: Allowance, client: Hashable
    ) -> Any:
        """Stand in for BatchChecks.check."""
        let_go = asyncio.Event()
        self.asked.append(let_go)
        self.clients.append(client)

        async def check() -> Verdicts:
            await let_go.wait()
            return await self._checks.check(batches, now_ms, allowance, client)

        return check()

    def has_asked(self, count: int) -> bool:
        """Return whether so many checks have been asked for."""
        return len(self.asked) >= count


async def send_other(broker: Broker) -> None:
    """Ask something else, so that all that has come before it is looked at."""
    async with client(broker) as other:
        await other.ask(ApiVersionsRequest(), version=0)


@asynccontextmanager
async def held(broker: Broker) -> AsyncIterator[Held]:
    """Hold the checks of a broker."""
    checks = broker.batch_checks
    broker.batch_checks = stand_in = Held(checks)  # type: ignore[assignment]
    yield stand_in
    broker.batch_checks = checks


@on_uvloop
async def test_the_rest_of_a_request_is_answered_in_its_place(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 4)
        parts = {3: batch(b"d"), 0: b"no batch", 9: batch(b"x"), 1: batch(b"b"), 2: None}
        found = await send(broker, request({ORDERS: parts}))
        assert [(one.index, one.error_code) for one in found] == [
            (3, 0),
            (0, ErrorCode.INVALID_RECORD),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (1, 0),
            (2, ErrorCode.INVALID_RECORD),
        ]
        assert [stored(log) for log in topic.logs] == [[], [b"b"], [], [b"d"]]


@on_uvloop
async def test_batches_of_a_client_keep_their_order(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one, held(broker) as checks:
        topic = await create(broker, "orders")
        asked = [request({ORDERS: {0: batch(b"%d" % at)}}, acks=-1) for at in range(5)]
        one.send(*asked, version=12)
        for at in range(5):
            await until(partial(checks.has_asked, at + 1))
            # None of those behind it is looked at, though its bytes are there.
            await send_other(broker)
            assert len(checks.asked) == at + 1
            checks.asked[at].set()
        for _ in range(5):
            response = (await one.receive())[1]
            assert response.responses[0].partition_responses[0].error_code == 0
        assert stored(topic.partitions[0]) == [b"%d" % at for at in range(5)]


@on_uvloop
async def test_a_topic_may_go_while_a_batch_is_checked(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one, held(broker) as checks:
        topic = await create(broker, "orders")
        one.send(request({ORDERS: {0: batch(b"a")}}), version=12)
        await until(lambda: checks.asked)
        assert await broker.topics.delete([topic.topic_id]) == [None]
        checks.asked[0].set()
        (answered,) = (await one.receive())[1].responses
        assert answered.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_uvloop
async def test_a_client_may_go_while_its_batch_is_checked(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, held(broker) as checks:
        topic = await create(broker, "orders")
        async with client(broker) as one:
            one.send(request({ORDERS: {0: batch(b"a")}}), version=12)
            await until(lambda: checks.asked)
            one.abort()
            await until(lambda: not broker.server.connections)
        checks.asked[0].set()
        sending = asyncio.ensure_future(send(broker, request({ORDERS: {0: batch(b"b")}})))
        await until(partial(checks.has_asked, 2))
        checks.asked[1].set()
        (fine,) = await sending
        assert fine.error_code == 0
        assert stored(topic.partitions[0]) == [b"b"]


@on_uvloop
async def test_a_stop_answers_what_is_being_checked(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one, held(broker) as checks:
        topic = await create(broker, "orders")
        one.send(request({ORDERS: {0: batch(b"a")}}, acks=-1), version=12)
        await until(lambda: checks.asked)
        stopping = asyncio.ensure_future(broker.stop())
        checks.asked[0].set()
        (answered,) = (await one.receive())[1].responses
        assert answered.partition_responses[0].error_code == 0
        await stopping
        assert topic.partitions[0].log_end_offset == 1


@on_uvloop
async def test_a_refused_batch_without_an_answer_closes_the_connection(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        await create(broker, "orders", configs={"cleanup.policy": "compact"})
        one.send(request({ORDERS: {0: batch(b"a", key=None)}}, acks=0), version=12)
        assert await one.is_closed()


@on_uvloop
async def test_a_batch_is_recompressed_by_a_thread(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", configs={"compression.type": "lz4"})
        packed = batch(*[b"value"] * 100, codec=Codec.GZIP)
        (answered,) = await send(broker, request({ORDERS: {0: packed}}))
        assert answered.error_code == 0
        ((header, _),) = topic.partitions[0].batches(0)
        assert header.codec is Codec.LZ4


@pytest.mark.parametrize("version", [VERIFIED_PRODUCE, PRODUCE])
@on_uvloop
async def test_a_transaction_may_end_while_its_first_batch_is_checked(
    tmp_path: Path, version: int
) -> None:
    async with live(tmp_path) as broker, client(broker) as one, client(broker) as other:
        topic = await create(broker, "orders")
        producer = Transactor(one)
        await producer.init()
        if version < PRODUCE:
            await producer.add("orders", 0)
        async with held(broker) as checks:
            one.send(producer.request("orders", {0: [b"a"]}), version=version)
            await until(lambda: checks.asked)
            end = EndTxnRequest(
                transactional_id=producer.name,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=False,
            )
            assert (await other.ask(end, version=END)).error_code == 0
            log = topic.partitions[0]
            await until(lambda: log.producers.get(producer.producer_id) is not None)
            checks.asked[0].set()
            (answered,) = (await one.receive())[1].responses
        assert answered.partition_responses[0].error_code in (
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_TXN_STATE,
        )
        assert log.producers.first_open_offset is None
        assert stored(log)[1:] == []


@on_uvloop
async def test_the_time_of_a_thread_counts_for_the_quota(tmp_path: Path) -> None:
    with mock.patch.object(Charge, "count_ns", autospec=True) as counted:
        async with live(tmp_path) as broker:
            await create(broker, "orders")
            await quota(broker, entity(client_id="a-client"), **{REQUEST: 1000.0})
            (answered,) = await send(broker, request({ORDERS: {0: batch(b"a")}}))
            assert answered.error_code == 0
    assert counted.call_args.args[1] > 0


class SlowLog:
    """A log whose checks take until they are let go; it notes whose have begun."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.may_end = threading.Semaphore(0)

    def check(self, records: bytes, *, now_ms: int, allowance: Allowance) -> CheckedBatch:
        """Stand in for Log.check."""
        self.begun.append(records)
        assert self.may_end.acquire(timeout=60)
        raise InvalidRecord("refused")


def taking_turns() -> tuple[BatchChecks, SlowLog, Callable[[str], asyncio.Future[Verdicts]]]:
    """Return checks, the log that they are of, and what asks for one of a client."""
    checks, log = BatchChecks(asyncio.get_running_loop()), SlowLog()

    def ask(client: str) -> asyncio.Future[Verdicts]:
        batches: Any = [(log, client.encode())]
        return checks.check(batches, 0, Allowance(), client)

    return checks, log, ask


@on_uvloop
async def test_clients_take_turns() -> None:
    checks, log, ask = taking_turns()
    greedy = [ask("greedy") for _ in range(20)]
    await until(lambda: len(log.begun) == 2)  # both threads
    modest = [ask("modest") for _ in range(2)]
    other = ask("other")
    for done in range(1, 24):
        log.may_end.release()
        await until(lambda done=done: len(log.begun) == min(23, done + 2))
    first = [b"greedy", b"modest", b"other", b"greedy", b"modest"]
    assert log.begun == [b"greedy"] * 2 + first + [b"greedy"] * 16
    found = await asyncio.gather(*greedy, *modest, other)
    assert all(isinstance(one.verdicts[0], InvalidRecord) for one in found)
    checks.close()


@on_uvloop
async def test_a_check_that_nobody_waits_for_any_more_is_not_begun() -> None:
    checks, log, ask = taking_turns()
    asked = [ask("one") for _ in range(5)]
    await until(lambda: len(log.begun) == 2)
    given_up = [asked[1], asked[2], asked[3]]
    for one in given_up:  # the first of them is under way
        one.cancel()
    log.may_end.release(3)
    await asyncio.gather(asked[0], asked[4])
    assert len(log.begun) == 3
    checks.close()


@on_uvloop
async def test_a_close_gives_up_what_waits_for_a_thread() -> None:
    checks, log, ask = taking_turns()
    asked = [ask("one") for _ in range(4)]
    await until(lambda: len(log.begun) == 2)
    checks.close()
    assert [one.cancelled() for one in asked] == [False, False, True, True]
    log.may_end.release(2)
    await asyncio.gather(*asked[:2])
    assert len(log.begun) == 2


@on_uvloop
async def test_connections_of_nobody_in_particular_are_clients_of_their_own(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker, held(broker) as checks:
        await create(broker, "orders")
        async with client(broker) as one, client(broker) as other:
            for asks in (one, one, other):
                before = len(checks.asked)
                asks.send(request({ORDERS: {0: batch(b"a")}}), version=12)
                await until(partial(checks.has_asked, before + 1))
                checks.asked[-1].set()
                await asks.receive()
    first, again, another = checks.clients
    assert first == again != another


@on_uvloop
async def test_connections_of_a_user_are_one_client(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, held(broker) as checks:
        await create(broker, "orders")
        asked = request({ORDERS: {0: batch(b"a")}})
        for name in ("alice", "alice", "bob"):
            whose = ConnectedClient(principal=Principal("User", name))
            (listener,) = broker.server.listeners
            context = RequestContext(None, listener, "/127.0.0.1", 12, 1, "a", client=whose)
            appending = Appending(broker, context, asked, {}, set())
            assert not appending.begin()
            finishing = asyncio.ensure_future(appending.finish())
            await until(lambda: checks.asked and not checks.asked[-1].is_set())
            checks.asked[-1].set()
            await finishing
    first, again, another = checks.clients
    assert first == again != another
