"""Long requests: others are served meanwhile, and each is answered in its turn."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.loop.slices import STANDING_MAX, Sliced, Slices
from odradek.broker.network import charging
from odradek.broker.network.serving import Serving
from odradek.broker.security.quotas import charge
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.pacing import Worker, paced
from tests.broker.live import Client, batch, client, create, live, on_uvloop, until
from tests.support.requests import committing, producing

# --- the scheduler ----------------------------------------------------------------------------


@dataclass
class Counting:
    """Work of some steps; notes when each is done, and what it came to."""

    name: int
    steps: int
    log: list[int]
    decoded: set[int]
    done: list[int] = field(default_factory=list)
    is_running: bool = True

    def step(self) -> int:
        self.decoded.add(self.name)
        for _ in paced(range(self.steps)):
            assert self.is_running
            self.log.append(self.name)
        self.decoded.discard(self.name)
        return self.name

    def end(self, outcome: int) -> None:
        self.done.append(outcome)

    def pause(self) -> None:
        assert self.is_running
        self.is_running = False

    def resume(self) -> None:
        assert not self.is_running
        self.is_running = True


@contextmanager
def slicing() -> Iterator[Slices]:
    """Share the running loop's time; what a test leaves is given up."""
    slices = Slices(asyncio.get_running_loop())
    try:
        yield slices
    finally:
        slices.close()


@given(lengths=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12))
def test_each_turn_of_the_loop_has_one_slice_and_all_work_ends(
    lengths: list[tuple[int, bool]],
) -> None:
    async def main() -> None:
        with slicing() as slices:
            log: list[int] = []
            decoded: set[int] = set()
            works = [
                Counting(name, steps, log, decoded) for name, (steps, _) in enumerate(lengths)
            ]
            for work, (_, is_large) in zip(works, lengths, strict=True):
                others = len(decoded)
                ended = slices.run(work, is_large=is_large)
                assert ended == bool(work.done)
                if is_large and others >= STANDING_MAX:
                    assert not ended
                    assert work.name not in decoded
            while any(not work.done for work in works):
                before = len(log)
                await asyncio.sleep(0)
                assert len(log) <= before + 1
            assert [work.done for work in works] == [[work.name] for work in works]
            assert len(log) == sum(steps for steps, _ in lengths)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("odradek.broker.loop.slices.SLICE_S", -1.0)
        asyncio.run(main())


@dataclass
class Answering:
    """A coroutine with long loops between its awaits; notes whether it was cancelled."""

    futures: list[asyncio.Future[int]]
    log: list[int] = field(default_factory=list)
    running: list[bool] = field(default_factory=list)
    was_cancelled: bool = False

    async def answer(self, steps: int) -> int:
        total = 0
        try:
            for future in self.futures:
                for number in paced(range(steps)):
                    self.log.append(number)
                total += await future
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        for number in paced(range(steps)):
            self.log.append(number)
        return total

    def sliced(self, slices: Slices, steps: int) -> Sliced[int]:
        return Sliced(
            self.answer(steps),
            slices,
            lambda: self.running.append(False),
            lambda: self.running.append(True),
        )


@given(awaits=st.integers(0, 3), steps=st.integers(0, 4))
def test_steps_of_coroutines_are_done_in_slices(awaits: int, steps: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        answering = Answering([loop.create_future() for _ in range(awaits)])
        slices = Slices(loop)
        task = asyncio.ensure_future(answering.sliced(slices, steps))
        for count, future in enumerate(answering.futures, 1):
            while len(answering.log) < count * steps:
                before = len(answering.log)
                await asyncio.sleep(0)
                assert len(answering.log) <= before + 2  # a step's last item, the next one's first
            future.set_result(count)
        assert await task == sum(range(awaits + 1))
        assert len(answering.log) == (awaits + 1) * steps
        # It stands still and goes on in turns, and has gone on in the end.
        assert answering.running == [False, True] * (len(answering.running) // 2)
        slices.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("odradek.broker.loop.slices.SLICE_S", -1.0)
        asyncio.run(main())


@pytest.mark.parametrize("turns", range(8))
def test_a_coroutine_that_stands_still_hears_later_that_nobody_waits(
    turns: int, thin_slices: None
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        slices = Slices(loop)
        answering = Answering([loop.create_future()])
        task = asyncio.ensure_future(answering.sliced(slices, 5))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert answering.log in ([], list(range(5)))  # not begun, or not left in the middle
        assert answering.was_cancelled == bool(answering.log)
        assert not slices.standing_count
        slices.close()

    asyncio.run(main())


async def test_a_coroutine_that_stands_still_is_given_up_in_the_end(thin_slices: None) -> None:
    ended: list[str] = []

    async def stand() -> None:
        try:
            for _ in paced(itertools.count()):
                pass
        finally:
            ended.append("here")

    slices = Slices(asyncio.get_running_loop())
    given_up: list[Worker] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "odradek.broker.loop.slices.Worker", lambda: given_up.append(Worker()) or given_up[-1]
        )
        task = asyncio.ensure_future(Sliced(stand(), slices))
        await until(lambda: given_up)  # begun by the task's first step: it stands still
        assert slices.standing_count
    slices.close()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert ended == ["here"]
    assert [worker.dead for worker in given_up] == [True]


async def test_an_error_of_a_coroutine_comes_out(thin_slices: None) -> None:
    async def fail() -> None:
        for _ in paced(range(3)):
            pass
        raise ValueError("the end")

    with slicing() as slices, pytest.raises(ValueError, match="the end"):
        await Sliced(fail(), slices)


@on_uvloop
async def test_no_garbage_is_looked_for_while_a_long_answer_awaits(thin_slices: None) -> None:
    async def commit() -> bool:
        for _ in paced(range(3)):
            pass
        before = gc.isenabled()
        await asyncio.sleep(0)
        return before or gc.isenabled()

    assert gc.isenabled()
    with slicing() as slices:
        assert not await Sliced(commit(), slices)
        assert not gc.isenabled()
        await until(gc.isenabled)
        assert not await Sliced(commit(), slices)
    assert gc.isenabled()


async def test_the_result_of_a_coroutine_is_freed_with_its_last_user() -> None:
    class Large:
        pass

    async def make() -> Large:
        await asyncio.sleep(0)
        return Large()

    gc.disable()
    try:
        with slicing() as slices:
            made = await Sliced(make(), slices)
        gone = weakref.ref(made)
        del made
        assert gone() is None
    finally:
        gc.enable()


# --- a broker ---------------------------------------------------------------------------------

LONG = DescribeGroupsRequest(
    groups=[f"group-{number}" for number in range(5_000)], include_authorized_operations=False
)


@pytest.fixture
def thin_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a request give way after each item of a long array."""
    monkeypatch.setattr("odradek.broker.loop.slices.SLICE_S", -1.0)


@on_uvloop
async def test_others_are_answered_while_a_request_takes_long(
    tmp_path: Path, thin_slices: None
) -> None:
    async with live(tmp_path) as broker, client(broker) as one, client(broker) as other:
        one.send(LONG, version=6)
        await until(lambda: broker.slices.standing_count)
        assert not (await other.ask(ApiVersionsRequest(), version=0)).error_code
        assert broker.slices.standing_count
        number, response = await one.receive()
        assert (number, len(response.groups)) == (0, len(LONG.groups))


@on_uvloop
async def test_requests_after_a_long_one_wait_for_it(tmp_path: Path, thin_slices: None) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        log = (await create(broker, "t")).partitions[0]
        one.hold()
        one.send(producing("t", batch(b"a")), version=9)
        one.send(LONG, version=6)
        one.send(producing("t", batch(b"b")), version=9)
        one.send(ApiVersionsRequest(), version=0)
        one.send_bytes(one.release())
        await until(lambda: broker.slices.standing_count)
        assert log.log_end_offset == 1
        assert [(await one.receive())[0] for _ in range(4)] == [0, 1, 2, 3]
        assert log.log_end_offset == 2


@on_uvloop
async def test_batches_of_a_topic_that_is_deleted_meanwhile_are_refused(
    tmp_path: Path, thin_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, held = Slices._turn, []

    def hold_requests(slices: Slices) -> None:
        """Give slices to other work, as long as any is held."""
        requests = [one for one in slices._standing if held and isinstance(one[1], Serving)]
        for one in requests:
            slices._standing.remove(one)
        turn(slices)
        slices._standing.extend(requests)
        if requests:
            slices._schedule()

    monkeypatch.setattr(Slices, "_turn", hold_requests)
    named = range(100)
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "t", len(named))
        first, *_, last = topic.logs
        request = producing("t", dict.fromkeys(named, batch(b"a")))
        one.send(request, version=9)
        while not first.log_end_offset:  # noqa: ASYNC110
            await asyncio.sleep(0)
        held.append(request)
        assert not last.log_end_offset
        assert await broker.topics.delete([topic.topic_id]) == [None]
        held.clear()
        _, response = await one.receive()
        told = [part.error_code for part in response.responses[0].partition_responses]
        gone = told.index(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert 0 < gone < len(named)
        assert told == [ErrorCode.NONE] * gone + [told[gone]] * (len(named) - gone)


@on_uvloop
async def test_offsets_are_read_as_of_one_moment(
    tmp_path: Path, thin_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, times = 200, 50  # of which a commit comes to its end while the answer is made
    asked = OffsetFetchRequestTopics(name="t", partition_indexes=[*range(count)] * times)
    fetching = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=[asked])], require_stable=False
    )
    async with live(tmp_path) as broker, client(broker) as one, client(broker) as other:
        await create(broker, "t", count)
        assert not any(await _commit(other, 1, count))
        fetch, begun = broker.groups.fetch, asyncio.Event()

        def begin(*asked: Any, **how: Any) -> Any:
            begun.set()
            return fetch(*asked, **how)

        monkeypatch.setattr(broker.groups, "fetch", begin)
        one.send(fetching, version=9)
        answer = asyncio.ensure_future(one.receive())
        # It may have stood still before, too, while it was decoded.
        await until(lambda: begun.is_set() and broker.slices.standing_count)
        assert not any(await _commit(other, 2, count))
        assert broker.slices.standing_count
        _, response = await answer
        (topic,) = response.groups[0].topics
        assert [part.committed_offset for part in topic.partitions] == [1] * count * times


async def _commit(one: Client, offset: int, count: int) -> list[int]:
    """Commit an offset in all partitions; return the errors."""
    request = committing("g", {"t": dict.fromkeys(range(count), offset)}, metadata=None)
    response = await one.ask(request, version=8)
    return [part.error_code for told in response.topics for part in told.partitions]


@on_uvloop
async def test_a_long_request_whose_client_has_gone_ends_by_itself(
    tmp_path: Path, thin_slices: None
) -> None:
    async with live(tmp_path) as broker, client(broker) as other:
        async with client(broker) as one:
            one.send(LONG, version=6)
            await until(lambda: broker.slices.standing_count)
        await until(lambda: len(broker.server.connections) == 1)
        await until(lambda: not broker.slices.standing_count)
        assert not (await other.ask(ApiVersionsRequest(), version=0)).error_code


@on_uvloop
async def test_a_few_large_requests_are_decoded_at_a_time(
    tmp_path: Path, thin_slices: None
) -> None:
    groups = [f"group-{number:060}" for number in range(1_200)]
    large = DescribeGroupsRequest(groups=groups, include_authorized_operations=False)
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(live(tmp_path))
        clients = [await stack.enter_async_context(client(broker)) for _ in range(6)]
        most = 0
        answers = []
        for one in clients:
            one.send(large, version=6)
            answers.append(asyncio.ensure_future(one.receive()))
        while not all(answer.done() for answer in answers):
            most = max(most, broker.slices.standing_count)
            await asyncio.sleep(0)
        assert [len(answer.result()[1].groups) for answer in answers] == [len(groups)] * 6
        assert 1 < most <= STANDING_MAX


@on_uvloop
async def test_a_quota_counts_slices_and_not_the_time_between(
    tmp_path: Path, thin_slices: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice takes a millisecond, and a second passes between two."""
    clock_ns = 0
    go_on, turn = Worker.go_on, Slices._turn

    def take_a_millisecond(worker: Worker, slice_s: float) -> bool:
        nonlocal clock_ns
        clock_ns += 1_000_000
        return go_on(worker, slice_s)

    def come_a_second_later(slices: Slices) -> None:
        nonlocal clock_ns
        clock_ns += 1_000_000_000
        turn(slices)

    monkeypatch.setattr(Worker, "go_on", take_a_millisecond)
    monkeypatch.setattr(Slices, "_turn", come_a_second_later)
    monkeypatch.setattr(charge, "perf_counter_ns", lambda: clock_ns)
    monkeypatch.setattr(charging, "begin_ns", lambda: clock_ns)
    async with live(tmp_path) as broker, client(broker) as one:
        # Of all slices together it is below, of all time above.
        for percent, is_above in ((10_000.0, False), (0.001, True)):
            quota = EntryData(
                entity=[EntityData(entity_type="client-id", entity_name=one.client_id)],
                ops=[OpData(key="request_percentage", value=percent, remove=False)],
            )
            altering = AlterClientQuotasRequest(entries=[quota], validate_only=False)
            assert not (await one.ask(altering, version=1)).entries[0].error_code
            begun_ns = clock_ns
            assert bool((await one.ask(LONG, version=6)).throttle_time_ms) == is_above
            assert clock_ns - begun_ns > 100 * 1_000_000_000
