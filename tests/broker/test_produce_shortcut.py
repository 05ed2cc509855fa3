"""The short way of Produce requests does what the long way does, to the byte.

Two brokers in one process get the same requests at the same time of a stopped clock. One of them
serves by the short way whatever it can, the other nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.composition import Broker
from odradek.broker.counters.topics import TopicCounts
from odradek.broker.network.short_way import ShortWay
from odradek.broker.produce.shortcut import ProduceShortcut, Unflushed
from odradek.protocol.frames import encode_request
from odradek.storage.errors import DiskFailure
from odradek.storage.log import Log
from tests.broker.append_cases import CASES, GOOD, NOW_MS, THREE, TOPICS, Batch
from tests.broker.append_mutations import mutations
from tests.broker.group_fakes import ManualClock
from tests.broker.live import Client, client, create, live, on_uvloop, pass_turns, until
from tests.broker.test_quotas import quota
from tests.support.requests import producing

VERSIONS = (7, 8, 9, 12, 13)
HUGE_BYTES = 1 << 20

# A topic, a batch, and options of `producing`.
Asked = tuple[str, bytes, dict[str, Any]]


class Pair:
    """A broker that knows the short way, and one that does not."""

    def __init__(self, brokers: Sequence[Broker], clients: Sequence[Client]) -> None:
        self.brokers, self.clients = brokers, clients
        # The requests that were answered by the short way.
        self.shortened = 0

    async def create(self, name: str, partitions: int = 1, **more: Any) -> None:
        """Create a topic on both."""
        for broker in self.brokers:
            await create(broker, name, partitions, **more)

    async def compare(self, *asked: Asked, version: int) -> None:
        """Send requests on both, and compare the answers."""
        answers: list[list[bytes]] = []
        for broker, one in zip(self.brokers, self.clients, strict=True):
            frames, ids = [], {}
            for number, (name, records, more) in enumerate(asked):
                topic = broker.topics.get(name)
                topic_id = bytes(range(16)) if topic is None else topic.topic_id
                ids[name] = topic_id
                options = dict(more)
                client_id = options.pop("client_id", "a-client")
                request = producing(name, records, topic_id=topic_id, **options)
                frames.append(encode_request(request, version, number, client_id))
            one.send_bytes(b"".join(frames))
            got = [await one.receive_frame() for _ in asked]
            for topic_id in ids.values():
                got = [answer.replace(topic_id, bytes(16)) for answer in got]
            answers.append(got)
        short, long = answers
        for sent, ours, theirs in zip(asked, short, long, strict=True):
            assert ours == theirs, (version, sent)

    def compare_all(self) -> None:
        """Compare the logs and the counts."""
        short, long = self.brokers
        for topic in short.topics:
            other = long.topics.get(topic.name)
            assert other is not None
            for ours, theirs in zip(topic.logs, other.logs, strict=True):
                assert content(ours) == content(theirs), ours.name
        for broker in self.brokers:
            assert broker.metrics.failed_requests == 0
        for name in ("requests", "errors", "refused_batches"):
            assert getattr(short.metrics, name) == getattr(long.metrics, name), name
        assert counts(short) == counts(long)


def counts(broker: Broker) -> dict[str, list[int]]:
    topics = {"": broker.metrics.all_topics, **broker.metrics.topics}
    return {
        name: [getattr(one, field) for field in TopicCounts.__slots__]
        for name, one in topics.items()
    }


def content(log: Log) -> list[bytes]:
    return [one.log.read(0, one.size_bytes) for one in log.segments]


@asynccontextmanager
async def pair(path: Path, values: dict[str, str] | None = None) -> AsyncIterator[Pair]:
    """Start both brokers, and connect to them."""
    take, serve = ShortWay.take, ProduceShortcut.serve
    clock = ManualClock(NOW_MS)
    async with (
        live(path / "short", values, clock=clock) as short,
        live(path / "long", values, clock=clock) as long,
        client(short) as to_short,
        client(long) as to_long,
    ):
        both = Pair([short, long], [to_short, to_long])

        def take_on_one(way: ShortWay, *arguments: Any) -> bool:
            return way._services is short and take(way, *arguments)

        def count(one: ProduceShortcut, *arguments: Any) -> list[Any] | Unflushed | None:
            answer = serve(one, *arguments)
            both.shortened += answer is not None
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ShortWay, "take", take_on_one)
            patch.setattr(ProduceShortcut, "serve", count)
            yield both


@on_uvloop
async def test_each_batch_has_the_fate_that_it_has_by_the_long_way(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        count = 0
        for at, (name, configs) in enumerate(TOPICS.items()):
            await both.create(name, configs=configs)
            options = {"acks": (1, -1)[at % 2]}
            sent = [(name, one, options) for one in CASES.values() if len(one) < HUGE_BYTES]
            count += len(sent)
            for first in range(0, len(sent), 50):
                version = VERSIONS[(at + first) % len(VERSIONS)]
                await both.compare(*sent[first : first + 50], version=version)
        both.compare_all()
        assert both.shortened > 0.8 * count


@on_uvloop
async def test_batches_that_are_too_large_have_their_fate(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.create("plain")
        for records in CASES.values():
            if len(records) >= HUGE_BYTES:
                sent = [("plain", one, {"acks": 1}) for one in (GOOD, records, GOOD)]
                await both.compare(*sent, version=9)
        both.compare_all()


@pytest.mark.parametrize("version", VERSIONS)
@on_uvloop
async def test_each_version_is_answered_as_by_the_long_way(tmp_path: Path, version: int) -> None:
    async with pair(tmp_path) as both:
        await both.create("plain")
        sent = [("plain", CASES[name], {"acks": 1}) for name in CASES if "huge" not in name]
        for at in range(0, len(sent), 50):
            await both.compare(*sent[at : at + 50], version=version)
        both.compare_all()
        assert both.shortened > 300


PRODUCERS = st.tuples(st.integers(1, 3), st.integers(0, 1), st.integers(0, 12))


@st.composite
def numbered(draw: st.DrawFn) -> bytes:
    """Batches of idempotent producers, some of which repeat or skip a sequence."""
    producer_id, epoch, sequence = draw(PRODUCERS)
    made = Batch(
        THREE, producer_id=producer_id, producer_epoch=epoch, base_sequence=3 * sequence
    )
    return made.encode()


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """The rest of a request, most often of one that has a shape."""
    return {
        "partition": draw(st.sampled_from([0, 0, 1, 2, 7, -1])),
        "acks": draw(st.sampled_from([1, 1, 1, -1, -1, 5])),
        "client_id": draw(st.sampled_from(["a-client", "", None])),
        "transactional_id": draw(st.sampled_from([None] * 7 + ["a-transaction"])),
    }


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, list[Asked]]:
    """A version, and requests of few shapes."""
    sizes = st.one_of(st.integers(0, 300), st.integers(16_000, 17_000), st.just(140_000))
    sized = sizes.map(lambda size: Batch([*THREE[:1]] * (size // 10 + 1)).encode())
    batches = st.one_of(st.just(GOOD), numbered(), sized, mutations())
    usual = {"acks": draw(st.sampled_from([1, -1])), "client_id": "a-client"}
    others = draw(st.lists(options(), max_size=2))
    shapes = st.sampled_from([usual, usual, *others])
    names = st.sampled_from(["plain", draw(st.sampled_from(["plain", "stamped", "unknown"]))])
    drawn = draw(st.lists(st.tuples(names, batches, shapes), min_size=3, max_size=20))
    return draw(st.sampled_from(VERSIONS)), drawn


@pytest.mark.slow
def test_any_requests_are_answered_as_by_the_long_way(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("pair")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()

        async def begin() -> Pair:
            both = await stack.enter_async_context(pair(path))
            await both.create("plain", 3)
            await both.create("stamped", 3, configs=TOPICS["stamped"])
            return both

        both = runner.run(begin())

        played = 0

        @given(requests())
        @settings(max_examples=150, deadline=None)
        def play(drawn: tuple[int, list[Asked]]) -> None:
            nonlocal played
            played += 1
            version, asked = drawn
            runner.run(both.compare(*asked, version=version))

        try:
            play()
            both.compare_all()
            assert both.shortened > played
        finally:
            runner.run(stack.aclose())


# --- what happens around it ---------------------------------------------------------------------


@on_uvloop
async def test_a_disk_that_refuses_the_flush_fails_acks_all(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.create("orders")
        await both.compare(("orders", GOOD, {}), version=9)
        for broker in both.brokers:
            broker.group_commit.flush = failing(tmp_path)  # type: ignore[method-assign]
        await both.compare(("orders", GOOD, {}), version=9)
        both.compare_all()
        assert both.shortened == 1


def failing(path: Path) -> Callable[[Iterable[Log]], asyncio.Future[Any]]:
    def flush(logs: Iterable[Log]) -> asyncio.Future[Any]:
        failed = asyncio.get_running_loop().create_future()
        for log in logs:
            log.failure = DiskFailure(path, OSError(5, "Input/output error"))
            failed.set_exception(log.failure)
        return failed

    return flush


@on_uvloop
async def test_a_producer_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.create("orders")
        await both.compare(("orders", GOOD, {}), version=9)
        short, one = both.brokers[0], both.clients[0]
        waited: list[asyncio.Future[None]] = []

        def flush(logs: Iterable[Log]) -> asyncio.Future[Any]:
            waited.append(asyncio.get_running_loop().create_future())
            return waited[-1]

        short.group_commit.flush = flush  # type: ignore[method-assign]
        one.send(producing("orders", GOOD), version=9)
        await until(lambda: waited)
        one.abort()
        await until(lambda: not short.server.connections)
        waited[0].set_result(None)
        await asyncio.sleep(0)  # the loop reports what goes wrong
        assert both.shortened == 1


@on_uvloop
async def test_a_bug_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as both:
        await both.create("orders")
        await both.compare(("orders", GOOD, {}), version=9)
        short, one = both.brokers[0], both.clients[0]
        topic = short.topics.get("orders")
        assert topic is not None
        topic.logs[0].on_append = None
        topic.logs[0].check = None  # type: ignore[assignment,method-assign]
        one.send(producing("orders", GOOD), version=9)
        assert await one.is_closed()
        assert short.metrics.failed_requests == 1
        assert "failed to serve request api=Produce" in caplog.text


@on_uvloop
async def test_a_request_that_has_to_wait_for_room_goes_the_long_way(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.create("orders")
        await both.compare(("orders", GOOD, {"acks": 1}), version=9)
        short, one = both.brokers[0], both.clients[0]
        full: asyncio.Future[None] = short.loop.create_future()
        short.group_commit.room = lambda: None if full.done() else full
        one.send(producing("orders", GOOD, acks=1), version=9)
        await pass_turns()
        assert end_offset(short) == len(THREE)
        full.set_result(None)
        await one.receive()
        assert end_offset(short) == 2 * len(THREE)
        assert both.shortened == 0


def end_offset(broker: Broker) -> int:
    topic = broker.topics.get("orders")
    assert topic is not None
    return topic.logs[0].log_end_offset


@on_uvloop
async def test_requests_are_charged_once_there_are_quotas(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.create("orders")
        asked = ("orders", GOOD, {"acks": 1})
        await both.compare(asked, asked, version=9)
        assert both.shortened == 1
        for broker in both.brokers:
            await quota(broker, (("user", None),), producer_byte_rate=1e9)
        await both.compare(asked, version=9)
        assert both.shortened == 1


@on_uvloop
async def test_forgets_the_oldest_of_too_many_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.broker.produce.shortcut._SHAPES_MAX", 2)
    async with pair(tmp_path) as both:
        await both.create("orders", 3)
        for partition in (0, 1, 2, 0, 1, 2):
            await both.compare(("orders", GOOD, {"partition": partition}), version=9)
        assert both.shortened == 0
        await both.compare(("orders", GOOD, {"partition": 2}), version=9)
        assert both.shortened == 1
