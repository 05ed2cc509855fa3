"""The TLS between socket and connection: whatever the pieces and pauses, all bytes come, in order.

The socket and the connection are stand-ins that a script of random steps drives; the client is
OpenSSL itself.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
import weakref
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.counters.metrics import Metrics
from odradek.broker.network.connection import Connection
from odradek.broker.security.principals import ANONYMOUS, Principal
from odradek.broker.security.tls.listeners import TlsListener
from odradek.broker.security.tls.transport import TlsTransport
from odradek.config.effective import resolve_listener
from odradek.config.resolution import Layer, Source
from odradek.config.tls import TlsConfig
from tests.broker.certificates import Authority

AUTHORITY = Authority()
SERVER = AUTHORITY.issue()
FAILED = ("SSL", "failed_authentication")
PATTERN = bytes(range(251))
# More than what is encrypted in one turn.
LARGE = 1_200_000


class Socket:
    """Stands in for uvloop's transport: takes what the script says, then is full."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.room = 1 << 30
        self.waiting = bytearray()
        self.is_paused = self.is_closed = self.has_ended = self.is_full = False
        self.protocol: TlsTransport

    def write(self, data: bytes) -> None:
        assert not self.has_ended and not self.is_closed
        self.waiting += data
        self.flush()
        if self.waiting and not self.is_full:
            self.is_full = True
            self.protocol.pause_writing()

    def flush(self) -> None:
        count = min(self.room, len(self.waiting))
        self.sent += self.waiting[:count]
        del self.waiting[:count]

    def drain(self) -> None:
        """Send all that waits."""
        self.sent += self.waiting
        self.waiting.clear()
        if self.is_full:
            self.is_full = False
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Plain:
    """Stands in for the connection: keeps what it is given."""

    def __init__(self) -> None:
        self.peer = "127.0.0.1:1"
        self.client = type("Client", (), {"principal": ANONYMOUS})()
        self.taken = bytearray()
        self.has_ended = self.is_held = False
        self._buffer = bytearray(100_000)
        self.transport: TlsTransport

    def connection_made(self, transport: TlsTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.taken += self._buffer[:nbytes]

    def eof_received(self) -> bool:
        self.has_ended = True
        return True

    def pause_writing(self) -> None:
        assert not self.is_held
        self.is_held = True

    def resume_writing(self) -> None:
        assert self.is_held
        self.is_held = False


class World:
    """A client, the two stand-ins, and TLS between them."""

    def __init__(self, **more: str) -> None:
        values = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": SERVER.key_pem(),
            "ssl.keystore.certificate.chain": SERVER.chain_pem(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": AUTHORITY.pem(),
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        layers = [Layer(Source.STATIC_BROKER, values)]
        config = resolve_listener(TlsConfig, layers, "SSL")
        self.metrics = Metrics()
        self.listener = TlsListener("SSL", "SSL", config, self.metrics)
        self.socket, self.plain = Socket(), Plain()
        self.tls = TlsTransport(cast(Connection, self.plain), self.listener)
        self.socket.protocol = self.tls
        self.tls.connection_made(cast(asyncio.Transport, self.socket))
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cadata=AUTHORITY.pem())
        self.client = context.wrap_bio(
            self.incoming, self.outgoing, server_hostname="localhost"
        )
        self.seen = bytearray()
        self._from_client = bytearray()

    def receive(self, data: bytes) -> int:
        """Give the broker bytes as its socket would, unless it is paused; return how many."""
        view = self.tls.get_buffer(-1)
        count = min(len(view), len(data))
        if self.socket.is_paused or self.socket.is_closed or not count:
            return 0
        view[:count] = data[:count]
        self.tls.buffer_updated(count)
        return count

    def pass_on(self, size: int) -> None:
        """Take up to so many bytes from the client to the broker, and all the other way."""
        self._from_client += self.outgoing.read()
        del self._from_client[: self.receive(bytes(self._from_client[:size]))]
        if self.socket.sent:
            self.incoming.write(bytes(self.socket.sent))
            self.socket.sent.clear()

    def read(self) -> None:
        """Let the client decrypt what has come."""
        try:
            while True:
                found = self.client.read(65536)
                if not found:
                    return
                self.seen += found
        except ssl.SSLWantReadError:
            pass

    async def shake_hands(self, size: int = 1 << 20) -> None:
        """Do the handshake."""
        for _ in range(100_000):
            try:
                self.client.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            self.pass_on(size)
            await asyncio.sleep(0)
            if done and not self._from_client and not self.listener.handshakes:
                return
        raise AssertionError("the handshake does not end")

    async def settle(self, condition: Callable[[], bool]) -> None:
        """Let both sides go on until something holds."""
        for _ in range(2000):
            if condition():
                return
            self.pass_on(1 << 20)
            self.read()
            self.socket.drain()
            await asyncio.sleep(0)
        raise AssertionError("it does not settle")


def some(number: int, size: int) -> bytes:
    """Make bytes that tell the steps of a script apart."""
    return (PATTERN[number:] * (size // 200 + 1))[:size]


STEPS = st.one_of(
    st.tuples(st.just("say"), st.integers(1, 60_000)),
    st.tuples(st.just("answer"), st.sampled_from([1, 10, 100, 1000, 70_000, LARGE])),
    st.tuples(st.just("pass"), st.integers(1, 40_000)),
    st.tuples(st.just("room"), st.sampled_from([0, 10_000, 1 << 30])),
    st.tuples(st.sampled_from(["drain", "pause", "resume", "turn"]), st.just(0)),
)


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(STEPS, max_size=20), piece=st.sampled_from([7, 500, 1 << 20]))
def test_all_bytes_come_in_order_whatever_the_pieces(
    steps: list[tuple[str, int]], piece: int
) -> None:
    async def play() -> None:
        world = World()
        await world.shake_hands(piece)
        said, answered = bytearray(), bytearray()
        for number, (step, size) in enumerate(steps):
            if step == "say":
                data = some(number, size)
                world.client.write(data)
                said += data
            elif step == "answer":
                data = some(number, size)
                world.tls.writelines([data[:10], memoryview(data)[10:]])
                answered += data
            elif step == "pass":
                world.pass_on(size)
            elif step == "room":
                world.socket.room = size
            elif step == "drain":
                world.socket.drain()
            elif step == "pause":
                world.tls.pause_reading()
                taken = len(world.plain.taken)
                world.pass_on(1 << 20)
                assert len(world.plain.taken) == taken
            elif step == "resume":
                world.tls.resume_reading()
            else:
                await asyncio.sleep(0)
            assert world.plain.is_held or not world.tls.get_write_buffer_size()
        world.socket.room = 1 << 30
        world.tls.resume_reading()
        await world.settle(
            lambda: len(world.plain.taken) == len(said) and len(world.seen) == len(answered)
        )
        assert (world.plain.taken, world.seen) == (said, answered)
        assert not world.plain.is_held
        world.tls.close()
        await world.settle(lambda: world.socket.is_closed)

    asyncio.run(play())


@settings(max_examples=40, deadline=None)
@given(
    data=st.binary(max_size=400),
    head=st.sampled_from([b"", b"\x16", b"\x16\x03\x01\x00\x05\x01\x00\x00\x01"]),
)
def test_any_bytes_in_a_handshake_wait_or_end_the_connection(data: bytes, head: bytes) -> None:
    async def play() -> None:
        world = World()
        sent = head + data
        while sent:
            count = world.receive(sent)
            sent = sent[count:]
            await asyncio.sleep(0)
            if not count:
                break
        await asyncio.sleep(0)
        ended = world.socket.has_ended or world.socket.is_closed
        assert ended == bool(world.metrics.authentications[FAILED])
        assert not world.plain.taken
        world.tls.connection_lost(None)
        assert not world.listener.handshakes

    asyncio.run(play())


@settings(max_examples=40, deadline=None)
@given(data=st.binary(min_size=1, max_size=100), at=st.integers(0, 5))
def test_bytes_that_were_changed_on_the_way_end_the_connection(data: bytes, at: int) -> None:
    async def play() -> None:
        world = World()
        await world.shake_hands()
        world.client.write(b"something")
        sent = bytearray(world.outgoing.read())
        sent[-1 - at] ^= 1
        world.receive(bytes(sent) + data)
        await asyncio.sleep(0)
        assert world.socket.has_ended
        assert not world.plain.taken

    asyncio.run(play())


@pytest.mark.parametrize("is_polite", [True, False])
def test_a_request_is_answered_after_the_clients_end(is_polite: bool) -> None:
    async def play() -> None:
        world = World()
        await world.shake_hands()
        world.client.write(b"a request")
        await world.settle(lambda: bytes(world.plain.taken) == b"a request")
        if is_polite:
            with pytest.raises(ssl.SSLWantReadError):
                world.client.unwrap()
            await world.settle(lambda: world.plain.has_ended)
        else:
            assert world.tls.eof_received()
            assert world.plain.has_ended
        world.tls.write(b"an answer")
        world.tls.close()
        assert world.socket.is_closed
        if not is_polite:
            world.pass_on(1)
            world.read()
            assert bytes(world.seen) == b"an answer"

    asyncio.run(play())


def test_a_response_is_encrypted_as_fast_as_the_socket_takes_it() -> None:
    async def play() -> None:
        world = World()
        await world.shake_hands()
        world.socket.room = 0
        world.tls.write(b"x" * 20_000_000)
        assert world.plain.is_held
        assert len(world.socket.waiting) < 300_000
        assert world.tls.get_write_buffer_size() > 19_000_000
        world.socket.room = 1 << 30
        world.socket.drain()
        await asyncio.sleep(0)
        # One turn, and others get theirs.
        assert 0 < len(world.socket.sent) < 2_000_000
        await world.settle(lambda: len(world.seen) == 20_000_000)

    asyncio.run(play())


def test_connected_clients_are_served_between_the_steps_of_handshakes() -> None:
    async def play() -> None:
        worlds = [World() for _ in range(5)]
        shared = worlds[0].listener.handshakes
        order: list[Any] = []

        class Step:
            def __init__(self, number: int) -> None:
                self.number = number

            def step(self) -> None:
                order.append(self.number)
                asyncio.get_running_loop().call_soon(order.append, "others")

            def give_up(self, reason: str) -> None:
                raise AssertionError(reason)

        for number in range(3):
            one = Step(number)
            shared.begin(one)
            shared.ask(one)
        for _ in range(10):
            await asyncio.sleep(0)
        assert order == [0, "others", 1, "others", 2, "others"]

    asyncio.run(play())


def test_a_suite_that_is_not_listed_is_not_agreed_on() -> None:
    async def play() -> None:
        world = World(ssl_cipher_suites="TLS_AES_256_GCM_SHA384")
        await world.shake_hands()
        assert world.client.version() == "TLSv1.3"
        older = World(ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
        await older.shake_hands()
        suite = older.client.cipher()
        assert suite is not None
        assert suite[:2] == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")
        newest = World(ssl_enabled_protocols="TLSv1.3")
        await newest.shake_hands()
        assert newest.client.version() == "TLSv1.3"
        assert newest.plain.client.principal == Principal("User", "ANONYMOUS")

    asyncio.run(play())


def test_the_memory_of_openssl_goes_with_the_connection() -> None:
    async def play() -> None:
        world = World()
        await world.shake_hands()
        inner = weakref.ref(world.tls._tls)
        world.socket.close()
        world.tls.connection_lost(None)
        assert inner() is None
        world.tls.write(b"too late")
        world.tls.resume_reading()
        world.tls.write_eof()
        world.tls.close()
        world.tls.abort()
        await asyncio.sleep(0)

    gc.disable()
    try:
        asyncio.run(play())
    finally:
        gc.enable()
