"""Connections: whatever the pieces bytes come in, each request is answered, in order, in turn."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.hosts.listener import Listener
from odradek.broker.metadata.store import ResourceType
from odradek.broker.network.backpressure import Backpressure
from odradek.broker.network.connection import Connection
from odradek.broker.network.dispatch import Dispatcher
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.frames import FrameReader
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.list_offsets import (
    ListOffsetsRequest,
)
from tests.broker.live import (
    Client,
    append,
    batch,
    client,
    create,
    live,
    on_uvloop,
    pass_turns,
    until,
)
from tests.support.requests import altering, fetching, listing_offsets, producing

SHARED_BYTES = 64
LONG_MS = 3_600_000
LARGE_BYTES = 300_000

# --- framing, without a socket ----------------------------------------------------------------


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@given(
    bodies=st.lists(st.binary(max_size=200), max_size=8),
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=20),
)
def test_frames_do_not_depend_on_the_pieces_they_come_in(
    bodies: list[bytes], sizes: list[int]
) -> None:
    shared = bytearray(SHARED_BYTES)
    reader = FrameReader(memoryview(shared), 1000)
    data = b"".join(map(framed, bodies))
    found = []
    for size in itertools.cycle(sizes):
        if not data:
            break
        target = reader.buffer()
        count = min(size, len(target), len(data))
        target[:count], data = data[:count], data[count:]
        del target
        reader.received(count)
        while (frame := reader.take()) is not None:
            found.append(bytes(frame))
        reader.settle()
        shared[:] = b"\xff" * SHARED_BYTES  # another connection's bytes
    assert found == bodies


@given(
    bodies=st.lists(st.binary(max_size=200), max_size=8),
    taken=st.lists(st.integers(0, 3), min_size=1, max_size=8),
)
def test_frames_may_be_taken_later_than_they_came(bodies: list[bytes], taken: list[int]) -> None:
    shared = bytearray(4096)
    reader = FrameReader(memoryview(shared), 1000)
    data = b"".join(map(framed, bodies))
    shared[: len(data)] = data
    reader.received(len(data))
    found = []
    for count in (*taken, len(bodies)):
        for _ in range(count):
            frame = reader.take()
            if frame is not None:
                found.append(bytes(frame))
        reader.settle()
        shared[:] = b"\xff" * len(shared)
    assert found == bodies


def test_a_large_frame_gets_memory_as_its_bytes_come() -> None:
    reader = FrameReader(memoryview(bytearray(1024)), 1 << 30)
    head = struct.pack(">i", 1 << 30) + b"x" * 100
    reader.buffer()[: len(head)] = head
    reader.received(len(head))
    assert reader.take() is None
    assert len(reader.buffer()) < 1 << 20


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_size_that_no_request_has_is_refused(size: int) -> None:
    reader = FrameReader(memoryview(bytearray(1024)), 1000)
    reader.buffer()[:4] = struct.pack(">i", size)
    reader.received(4)
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        reader.take()


# --- turns, with requests that are answered whenever the test says ----------------------------

ORDINARY, OVERLAPPING = b"\x00\x01", b"\x00\x00"


@dataclass
class Script:
    """Stands in for the dispatcher: notes what begins, and answers when told."""

    frame_size_max: int = 1 << 20
    pending_max: int = 4
    backpressure: Backpressure = field(default_factory=lambda: Backpressure(-1))
    begun: list[int] = field(default_factory=list)
    unanswered: dict[int, tuple[Connection, Any]] = field(default_factory=dict)
    clock_s: float = 0.0  # each request takes a millisecond

    def may_overlap(self, frame: memoryview) -> bool:
        return frame[:2] == OVERLAPPING

    def refuse(self, connection: Connection, error: ProtocolError) -> None:
        connection.refuse(str(error))

    def serve(self, connection: Connection, frame: memoryview) -> None:
        number = struct.unpack(">i", frame[2:6])[0]
        self.begun.append(number)
        self.clock_s += 0.001
        if frame[6]:  # ready at once
            connection.reply([b"%d," % number])
            return
        awaited = asyncio.get_running_loop().create_future()
        slot = connection.reply_later(awaited, overlaps=self.may_overlap(frame))
        self.unanswered[number] = connection, slot

    def answer(self, number: int) -> None:
        connection, slot = self.unanswered.pop(number)
        connection.fill(slot, [b"%d," % number])


class Wire(asyncio.Transport):
    """Stands in for the transport: keeps what is written; notes pauses and the end."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.writes = 0
        self.is_paused = False
        self.closed = False
        self.unsent_bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written += data
        self.writes += 1

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused and not self.closed
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes


LISTENER = Listener("PLAINTEXT", "127.0.0.1", 9092, "localhost", 9092)


def connect(script: Script) -> tuple[Connection, Wire]:
    made = Connection(cast(Dispatcher, script), LISTENER, ("127.0.0.1", 1), lambda _: None)
    wire = Wire()
    made.connection_made(wire)
    return made, wire


def receive(made: Connection, data: bytes) -> int:
    """Give it bytes as the event loop does; return how many it took."""
    buffer = made.get_buffer(-1)
    count = min(len(buffer), len(data))
    buffer[:count] = data[:count]
    del buffer
    made.buffer_updated(count)
    return count


requests = st.lists(
    st.tuples(st.sampled_from([ORDINARY, OVERLAPPING]), st.booleans()), max_size=12
)


@given(
    kinds=requests,
    cuts=st.lists(st.integers(0, 150), max_size=5),
    source=st.randoms(use_true_random=False),
)
def test_responses_keep_the_order_of_requests_whenever_they_are_ready(
    kinds: list[tuple[bytes, bool]], cuts: list[int], source: random.Random
) -> None:
    async def main() -> None:
        script = Script()
        made, wire = connect(script)
        data = b"".join(
            framed(kind + struct.pack(">i?", number, is_ready))
            for number, (kind, is_ready) in enumerate(kinds)
        )
        ends = [*sorted(cut for cut in cuts if cut < len(data)), len(data)]
        start = 0
        while start < len(data) or script.unanswered:
            if start < len(data) and not wire.is_paused and source.random() < 0.5:
                end = next(end for end in ends if end > start)
                start += receive(made, data[start:end])
            elif start < len(data) and not script.unanswered:
                assert not wire.is_paused, "nothing will ever make it go on"
            else:
                script.answer(source.choice(list(script.unanswered)))
            check_overlap(script, kinds)
        await asyncio.sleep(0)  # in which what was answered goes out
        assert script.begun == list(range(len(kinds)))
        assert wire.written == b"".join(b"%d," % number for number in range(len(kinds)))
        assert not wire.is_paused

    asyncio.run(main())


def check_overlap(script: Script, kinds: list[tuple[bytes, bool]]) -> None:
    """Only requests that may overlap are awaited together, and not too many."""
    assert len(script.unanswered) <= script.pending_max
    if len(script.unanswered) > 1:
        assert {kinds[number][0] for number in script.unanswered} == {OVERLAPPING}


async def test_a_client_that_does_not_read_is_not_served_on() -> None:
    script = Script(pending_max=100)
    made, wire = connect(script)
    ready = [framed(ORDINARY + struct.pack(">i?", number, True)) for number in range(6)]
    receive(made, ready[0])
    made.pause_writing()  # as a transport does once too much is unsent
    receive(made, b"".join(ready[1:]))
    assert script.begun == [0]
    assert wire.is_paused
    made.resume_writing()
    await asyncio.sleep(0)
    assert script.begun == [0, 1, 2, 3, 4, 5]
    assert not wire.is_paused


async def test_many_requests_of_one_reading_let_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script, other = Script(), Script()
    monkeypatch.setattr("odradek.broker.network.connection.perf_counter", lambda: script.clock_s)
    made, wire = connect(script)
    count = 200
    data = b"".join(framed(ORDINARY + struct.pack(">i?", number, True)) for number in range(count))
    assert receive(made, data) == len(data)
    turns = [len(script.begun)]
    while len(script.begun) < count:
        assert wire.is_paused
        ping, _ = connect(other)
        receive(ping, framed(ORDINARY + struct.pack(">i?", len(turns), True)))
        await asyncio.sleep(0)  # a turn of the loop
        turns.append(len(script.begun))
    assert other.begun == list(range(1, len(turns)))
    assert max(after - before for before, after in itertools.pairwise([0, *turns])) < 30
    assert script.begun == list(range(count))
    assert wire.written == b"".join(b"%d," % number for number in range(count))
    assert not wire.is_paused


async def test_responses_to_requests_that_came_together_go_out_together() -> None:
    made, wire = connect(Script())
    ready = [framed(OVERLAPPING + struct.pack(">i?", number, True)) for number in range(6)]
    receive(made, b"".join(ready[:4]))
    assert (wire.written, wire.writes) == (b"0,1,2,3,", 1)
    receive(made, b"".join(ready[4:]))
    assert (wire.written, wire.writes) == (b"0,1,2,3,4,5,", 2)


async def test_responses_that_are_ready_in_one_turn_of_the_loop_go_out_together() -> None:
    script = Script(pending_max=100)  # nothing waits for its turn
    made, wire = connect(script)
    waiting = [framed(OVERLAPPING + struct.pack(">i?", number, False)) for number in range(4)]
    receive(made, b"".join(waiting))
    for number in (1, 0, 2):
        script.answer(number)
    await asyncio.sleep(0)
    assert (wire.written, wire.writes) == (b"0,1,2,", 1)
    script.answer(3)
    made.abort()
    assert wire.written == b"0,1,2,3,", "what was answered before is sent"


async def test_a_connection_is_closed_once_its_last_response_is_sent() -> None:
    script = Script()
    made, wire = connect(script)
    receive(made, framed(OVERLAPPING + struct.pack(">i?", 7, False)))
    assert made.eof_received(), "it stays open for the answer"
    script.answer(7)
    assert wire.written == b"7,"
    assert wire.closed


async def test_answers_are_sent_before_a_later_frame_closes_the_connection() -> None:
    made, wire = connect(Script())
    ready = framed(OVERLAPPING + struct.pack(">i?", 7, True))
    receive(made, ready + struct.pack(">i", -1))
    assert wire.written == b"7,"
    assert wire.closed


async def test_a_connection_that_a_later_frame_closes_is_not_read_from_again() -> None:
    script = Script()
    made, wire = connect(script)
    waiting, ready = (ORDINARY + struct.pack(">i?", number, number == 8) for number in (7, 8))
    receive(made, framed(waiting) + framed(ready) + struct.pack(">i", -1))
    assert wire.is_paused
    script.answer(7)
    await asyncio.sleep(0)
    assert script.begun == [7, 8]
    assert wire.closed and wire.is_paused


async def test_a_client_that_reads_slowly_is_not_idle() -> None:
    made, wire = connect(Script())
    wire.unsent_bytes = 5_000
    begun = asyncio.get_running_loop().time()
    for passed_s in range(10, 60, 10):
        wire.unsent_bytes -= 100
        assert made.idle_s(begun + passed_s) == 0
    assert made.idle_s(begun + 80) == 30


async def test_a_connection_is_not_idle_while_it_awaits_a_response() -> None:
    script = Script()
    made, _ = connect(script)
    later = asyncio.get_running_loop().time() + 1000
    receive(made, framed(ORDINARY + struct.pack(">i?", 0, False)))
    assert made.idle_s(later) == 0
    script.answer(0)
    assert made.idle_s(later) > 900
    receive(made, framed(ORDINARY + struct.pack(">i?", 1, False)))
    assert made.eof_received(), "it stays open for the answer"
    # Who has ended its stream may have gone for good, which only an answer would show.
    assert made.idle_s(later) > 900


# --- over a socket ----------------------------------------------------------------------------


def latest(name: str) -> ListOffsetsRequest:
    """Ask for the end of partition 0."""
    return listing_offsets({name: [0]})


@on_uvloop
async def test_a_parked_fetch_gives_way_to_what_comes_after_it_and_no_other_does(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker, client(broker) as one, client(broker) as other:
        topic = await create(broker, "orders")
        append(topic.partitions[0], batch(b"a"))
        other.send(fetching("orders", offset=1, wait_ms=LONG_MS), version=8)
        for offset, there in ((0, True), (1, False)):
            # Parked before the other request comes, and not even begun to be.
            for parks in (True, False):
                asked = fetching("orders", offset=offset, wait_ms=LONG_MS)
                asked.min_bytes = 1 << 20
                one.send(asked, version=8)
                if parks:
                    await until(lambda: len(broker.purgatory) == 2)
                one.send(latest("orders"), version=8)
                _, fetched = await one.receive()
                assert bool(fetched.responses[0].partitions[0].records) == there
                _, listed = await one.receive()
                assert listed.topics[0].partitions[0].offset == 1
        assert len(broker.purgatory) == 1
        append(topic.partitions[0], batch(b"b"))
        assert (await other.receive())[1].responses[0].partitions[0].records


@on_uvloop
async def test_a_parked_fetch_keeps_waiting_where_it_may_not_be_hurried(tmp_path: Path) -> None:
    settings = {"odradek.fetch.hurry": "false"}
    async with live(tmp_path, settings) as broker, client(broker) as one, client(broker) as other:
        topic = await create(broker, "orders")
        for parks in (True, False):
            end = topic.partitions[0].log_end_offset
            one.send(fetching("orders", offset=end, wait_ms=LONG_MS), version=8)
            if parks:
                await until(lambda: len(broker.purgatory) == 1)
            one.send(latest("orders"), version=8)
            await until(lambda: len(broker.purgatory) == 1)
            await other.ask(latest("orders"), version=8)
            assert len(broker.purgatory) == 1
            append(topic.partitions[0], batch(b"a"))
            _, fetched = await one.receive()
            assert fetched.responses[0].partitions[0].records
            _, listed = await one.receive()
            assert listed.topics[0].partitions[0].offset == end + 1


@on_uvloop
async def test_whether_fetches_are_hurried_can_be_changed_while_one_waits(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one, client(broker) as other:
        topic = await create(broker, "orders")
        one.send(fetching("orders", wait_ms=LONG_MS), version=8)
        await until(lambda: len(broker.purgatory) == 1)
        await set_hurry(other, "false")
        one.send(latest("orders"), version=8)
        await other.ask(latest("orders"), version=8)
        assert len(broker.purgatory) == 1
        append(topic.partitions[0], batch(b"a"))
        assert (await one.receive())[1].responses[0].partitions[0].records
        await one.receive()
        one.send(fetching("orders", offset=1, wait_ms=LONG_MS), version=8)
        await until(lambda: len(broker.purgatory) == 1)
        await set_hurry(other, "true")
        one.send(latest("orders"), version=8)
        assert not (await one.receive())[1].responses[0].partitions[0].records


async def set_hurry(one: Client, value: str) -> None:
    """Set odradek.fetch.hurry for all brokers."""
    request = altering("", {"odradek.fetch.hurry": value}, ResourceType.BROKER)
    (answer,) = (await one.ask(request, version=1)).responses
    assert answer.error_code == 0, answer


@on_uvloop
async def test_a_parked_fetch_holds_up_fetches_and_nobody_else(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one, client(broker) as other:
        topic = await create(broker, "orders")
        one.send(*[fetching("orders", wait_ms=LONG_MS)] * 2, version=8)
        await until(lambda: len(broker.purgatory))
        assert (await other.ask(latest("orders"), version=8)).topics[0].partitions[0].offset == 0
        assert len(broker.purgatory) == 1
        append(topic.partitions[0], batch(b"a", b"b"))
        answers = [await one.receive(), await one.receive()]
        assert [number for number, _ in answers] == [0, 1]
        # The second request was served in its turn, when the records were there.
        assert all(answer.responses[0].partitions[0].records for _, answer in answers)


@on_uvloop
async def test_a_request_sees_what_the_one_before_it_did(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        await create(broker, "orders")
        records = batch(b"a")
        for at in range(20):  # each waits for the disk
            one.send(producing("orders", records), version=8)
            one.send(latest("orders"), version=8)
            assert (await one.receive())[1].responses[0].partition_responses[0].base_offset == at
            assert (await one.receive())[1].topics[0].partitions[0].offset == at + 1


@on_uvloop
async def test_produce_requests_of_a_connection_share_trips_to_the_disk(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        await create(broker, "orders")
        count, before = 50, broker.group_commit.flushes
        one.send(*[producing("orders", batch(b"a")) for _ in range(count)], version=8)
        answers = [await one.receive() for _ in range(count)]
        assert [number for number, _ in answers] == list(range(count))
        offsets = [one.responses[0].partition_responses[0].base_offset for _, one in answers]
        assert offsets == list(range(count))
        assert broker.group_commit.flushes - before < count // 2


@on_uvloop
async def test_a_client_that_never_reads_costs_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        append(topic.partitions[0], batch(bytes(LARGE_BYTES)))
        count = 500
        one.send(*[fetching("orders") for _ in range(count)], version=4)
        await until(lambda: broker.metrics.all_topics.bytes_out)
        await pass_turns(2 * count)  # each request could have been answered meanwhile
        # What lies in the sockets and in asyncio's client is all that goes beyond one response.
        assert broker.metrics.all_topics.bytes_out < 40 * LARGE_BYTES
        (served,) = broker.server.connections
        assert served.transport.get_write_buffer_size() < 2 * LARGE_BYTES
        for number in range(count):
            assert (await one.receive())[0] == number


@pytest.mark.parametrize("parked", [False, True])
def test_a_client_that_ends_its_stream_is_answered_first(tmp_path: Path, parked: bool) -> None:
    @on_uvloop
    async def main() -> None:
        async with live(tmp_path) as broker, client(broker) as one:
            await create(broker, "orders")
            wait_ms = 100 if parked else 0
            one.send(latest("orders"), fetching("orders", wait_ms=wait_ms), version=8)
            one.send_bytes(b"\0\0")  # and then half a frame's size
            one.end()
            assert [(await one.receive())[0], (await one.receive())[0]] == [0, 1]
            assert await one.is_closed()
            await until(lambda: not broker.server.connections)

    main()


@on_uvloop
async def test_a_client_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        await create(broker, "orders")
        one.send(fetching("orders", wait_ms=LONG_MS), version=8)
        await until(lambda: len(broker.purgatory))
        one.abort()
        await until(lambda: not broker.server.connections)
        await until(lambda: not len(broker.purgatory))


@on_uvloop
async def test_silent_connections_are_closed_after_a_while(tmp_path: Path) -> None:
    async with live(tmp_path, {"connections.max.idle.ms": "50"}) as broker:
        await create(broker, "orders")
        async with client(broker) as silent, client(broker) as half, client(broker) as gone:
            half.send_bytes(b"\0")
            # Who has ended its stream may have gone for good, whatever it waits for.
            gone.send(fetching("orders", wait_ms=LONG_MS), version=8)
            gone.end()
            for one in (silent, half, gone):
                assert await one.is_closed()
        await until(lambda: not broker.server.connections)
        assert len(broker.purgatory) == 0


@on_uvloop
async def test_connections_may_be_idle_for_ever(tmp_path: Path) -> None:
    async with live(tmp_path, {"connections.max.idle.ms": "-1"}) as broker, client(broker) as one:
        await one.ask(ApiVersionsRequest(), version=0)
        broker.server.close_idle()
        await one.ask(ApiVersionsRequest(), version=0)


@on_uvloop
async def test_small_packets_are_sent_at_once_and_dead_peers_found(tmp_path: Path) -> None:
    settings = {"socket.send.buffer.bytes": "-1", "socket.receive.buffer.bytes": "20000"}
    async with live(tmp_path, settings) as broker, client(broker) as one:
        await one.ask(ApiVersionsRequest(), version=0)
        (served,) = broker.server.connections
        options = served.transport.get_extra_info("socket")
        assert options.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert options.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        # Linux doubles what is asked for.
        assert options.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 40_000


@on_uvloop
async def test_large_requests_survive_any_pieces(tmp_path: Path) -> None:
    source = random.Random(1)
    async with live(tmp_path) as broker, client(broker) as one:
        await create(broker, "orders")
        values = [source.randbytes(size) for size in (10, 900_000, 1, 262_136, 262_140, 300_000)]
        one.hold()
        for value in values:
            one.send(producing("orders", batch(value), acks=1), version=8)
        data = one.release()
        position = 0
        while position < len(data):
            step = source.choice([1, 3, 100, 70_000, 262_144, 400_000])
            one.send_bytes(data[position : position + step])
            position += step
            await one.drain()
        for at in range(len(values)):
            number, answer = await one.receive()
            part = answer.responses[0].partition_responses[0]
            assert (number, part.error_code, part.base_offset) == (at, ErrorCode.NONE, at)
        found = []
        for offset in range(len(values)):
            response = await one.ask(fetching("orders", offset=offset, size_max=1), version=4)
            found.append(bytes(response.responses[0].partitions[0].records))
        for value, records in zip(values, found, strict=True):
            assert value in records
