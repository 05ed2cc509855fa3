"""Clients that speak TLS to do harm: what they may cost, whatever they send, and others meanwhile.

What comes in pieces, and bytes of no meaning, are in test_tls_transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.security.tls import hello as module
from odradek.broker.security.tls.hello import FirstMessage, HelloRefused, check
from odradek.broker.security.tls.interrupting import TookTooLong, at_most
from odradek.broker.security.tls.names import _dotted, subject_name
from odradek.broker.security.tls.reasons import HandshakeFailed
from odradek.broker.security.tls.records import RecordBorders
from odradek.broker.security.tls.transport import _TURN_RECORDS
from tests.broker.certificates import Authority
from tests.broker.live import client, live, on_uvloop, until
from tests.broker.test_tls import AUTHORITY, FAILED, ask_versions, principals, trusting
from tests.broker.test_tls import settings as tls_settings
from tests.broker.test_tls_reload import alter
from tests.broker.test_tls_transport import World
from tests.broker.tls_records import (
    ALERT,
    DATA,
    FFDHE2048,
    FFDHE8192,
    X25519,
    Forger,
    extension,
    hello,
    records,
)

COUNT = 300
LARGE_SHARE = bytes(range(256)) * 4
# What OpenSSL takes 50 to 150 ms for.
COSTLY = {
    "a finite field": hello([FFDHE8192], [(FFDHE8192, LARGE_SHARE)]),
    "a finite field beside a curve": hello([X25519, FFDHE8192], [(FFDHE8192, LARGE_SHARE)]),
    "finite fields to be asked for": hello([FFDHE2048, FFDHE8192], []),
    "groups times shares": hello([0x7000] * 15_000 + [0x7001], [(0x7001, b"x")] * 6_000),
}


@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.parametrize("size", [1, 100, 16_384])
def test_a_costly_hello_is_refused_before_openssl_sees_it(name: str, size: int) -> None:
    async def play() -> float:
        world = World()
        sent = records(COSTLY[name], size)
        begun_s = time.process_time()
        while sent and not world.socket.has_ended:
            sent = sent[world.receive(sent) :]
            await asyncio.sleep(0)
        taken_s = time.process_time() - begun_s
        assert world.socket.has_ended and world.metrics.authentications[FAILED] == 1
        assert world.socket.sent[:1] == bytes((ALERT,))  # handshake_failure
        assert not hasattr(world.tls, "_tls")
        return taken_s

    # The garbage of other tests may be searched meanwhile.
    assert min(asyncio.run(play()) for _ in range(3)) < 0.05


@pytest.mark.parametrize("size", [1, 5, 100])
def test_an_ordinary_hello_may_come_in_small_records(size: int) -> None:
    async def play() -> None:
        world = World()
        assert world.receive(records(hello([FFDHE2048, X25519]), size))
        await asyncio.sleep(0)
        assert world.socket.sent[:1] == b"\x16" and not world.socket.has_ended

    asyncio.run(play())


def test_a_hello_that_stops_anywhere_is_waited_for_and_keeps_nothing_of_openssl() -> None:
    async def play() -> None:
        whole = records(hello())
        for end in range(len(whole)):
            world = World()
            if end:
                world.receive(whole[:end])
            await asyncio.sleep(0)
            assert len(world.listener.handshakes) == 1
            assert not world.socket.has_ended and not hasattr(world.tls, "_tls")
            world.tls.give_up("too late")
            assert not world.listener.handshakes

    asyncio.run(play())


@pytest.mark.parametrize(
    "sent",
    [
        records(hello())[:50] + records(b"\x01\x5a", kind=ALERT),
        records(hello()[:50]) + records(b"\x01\x5a", kind=ALERT),
        records(hello()[:50]) + b"\x16\x03\x01\0\0",
        records(b"\x01\xff\xff\xff"),
        records(b"\x02" + hello()[1:]),
        records(hello(more=extension(21, b"\0" * 65_000))),
        records(hello()[:-1] + b"\x01", 1) * 60,
    ],
    ids=["cut", "alert", "empty", "length", "server hello", "long", "pieces"],
)
def test_a_hello_of_another_shape_ends_at_once_in_bounded_memory(sent: bytes) -> None:
    first, taken = FirstMessage(), 0
    with contextlib.suppress(HandshakeFailed):
        while taken < len(sent):
            if first.take(memoryview(sent)[taken : taken + 1_000]) is not None:
                break
            taken += 1_000
    assert len(first._raw) < 100_000


@settings(max_examples=300)
@given(
    st.binary(max_size=300),
    st.integers(0, 250),
    st.sampled_from([b"", hello()[4:], COSTLY["finite fields to be asked for"][4:]]),
)
def test_any_hello_passes_or_is_refused(data: bytes, at: int, real: bytes) -> None:
    with contextlib.suppress(HelloRefused):
        check(real[:at] + data + real[at + len(data) :])


def test_the_first_messages_of_clients_pass() -> None:
    context = ssl.create_default_context()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context.minimum_version = context.maximum_version = version
        outgoing = ssl.MemoryBIO()
        one = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            one.do_handshake()
        sent = outgoing.read()
        assert FirstMessage().take(memoryview(sent)) == sent
        groups, shares = module._offered(sent[9:])
        assert X25519 in groups and (not shares or X25519 in shares)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=60),
    st.lists(st.integers(1, 90), min_size=1),
    st.integers(1, 9),
)
def test_records_are_counted_across_any_pieces(
    sizes: list[int], pieces: list[int], count: int
) -> None:
    stream = b"".join(b"\x17\x03\x03" + bytes((0, size)) + b"\xff" * size for size in sizes)
    ends = {sum(5 + one for one in sizes[: at + 1]) for at in range(len(sizes))}
    borders, at, turn = RecordBorders(), 0, 0
    while at < len(stream):
        data = memoryview(stream)[at : at + pieces[turn % len(pieces)]]
        end = borders.end_of(data, count)
        assert 0 < end <= len(data)
        if end < len(data):
            assert at + end in ends
        assert sum(at < one <= at + end for one in ends) <= count + 1
        at, turn = at + end, turn + 1


def flood(forger: Forger, kind: str) -> Iterator[bytes]:
    """Yield records of little use for ever."""
    while True:
        if kind != "bytes":
            yield forger.key_update(asks=kind == "updates with answers")
        if kind != "updates with answers":
            yield forger.record(DATA, b"x")


@pytest.mark.parametrize("kind", ["updates with answers", "updates and bytes", "bytes"])
def test_others_have_their_turn_between_many_small_records(tmp_path: Path, kind: str) -> None:
    async def play() -> None:
        world = World()
        log = tmp_path / "keys"
        world.client.context.keylog_filename = str(log)
        await world.shake_hands()
        forger = Forger.of(log)
        endless = flood(forger, kind)
        sent = b"".join(next(endless) for _ in range(4_000))
        assert world.receive(sent) == len(sent)
        assert len(world.plain.taken) <= _TURN_RECORDS
        turns = 0
        while world.socket.is_paused:
            turns += 1
            before = len(world.plain.taken)
            await asyncio.sleep(0)
            assert len(world.plain.taken) - before <= _TURN_RECORDS
        assert turns >= 4_000 // _TURN_RECORDS - 2
        world.receive(forger.record(DATA, b"a request"))
        assert world.plain.taken.endswith(b"a request")
        assert not world.socket.has_ended

    asyncio.run(play())


def test_a_pause_in_a_flood_of_records_holds_the_rest_back(tmp_path: Path) -> None:
    async def play() -> None:
        world = World()
        log = tmp_path / "keys"
        world.client.context.keylog_filename = str(log)
        await world.shake_hands()
        forger = Forger.of(log)
        world.receive(b"".join(forger.record(DATA, b"x") for _ in range(1_000)))
        world.tls.pause_reading()
        for _ in range(20):
            await asyncio.sleep(0)
        taken = len(world.plain.taken)
        assert taken <= 2 * _TURN_RECORDS and world.socket.is_paused
        world.tls.resume_reading()
        await world.settle(lambda: len(world.plain.taken) == 1_000)
        assert not world.socket.is_paused

    asyncio.run(play())


@pytest.mark.parametrize(
    ("kind", "content"), [(DATA, b""), (ALERT, b"\x01\x5a"), (ALERT, b"\x02\x28")]
)
def test_a_flood_of_empty_records_or_alerts_ends_the_connection(
    tmp_path: Path, kind: int, content: bytes
) -> None:
    async def play() -> None:
        world = World()
        log = tmp_path / "keys"
        world.client.context.keylog_filename = str(log)
        await world.shake_hands()
        forger = Forger.of(log)
        world.receive(b"".join(forger.record(kind, content) for _ in range(1_000)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.socket.has_ended and not world.plain.taken

    asyncio.run(play())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_uvloop
async def test_a_session_ends_with_the_trust_in_its_authority(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    revoked, others = Authority("Before"), Authority("After")
    given_settings = tls_settings(tmp_path, ssl_client_auth="required") | {
        "ssl.truststore.location": str(revoked.pem_file(tmp_path / "before.pem"))
    }
    context = trusting(tmp_path, revoked.issue("alice"))
    context.maximum_version = version

    def connect(port: int, session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession | None]:
        """Log in and ask for something, so that tickets have come; tell if it was resumed."""
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as one,
        ):
            one.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xff")
            assert one.recv(4)
            return bool(one.session_reused), one.session

    async with live(tmp_path, given_settings) as broker:
        port = broker.server.listeners[0].port
        resumed, session = await asyncio.to_thread(connect, port, None)
        assert not resumed and session is not None
        resumed, session = await asyncio.to_thread(connect, port, session)
        assert resumed
        # A handshake that has not begun goes by what is in force when it does.
        early = socket.create_connection(("127.0.0.1", port), timeout=10)
        await until(lambda: len(broker.server._tls["SSL"].handshakes) == 1)
        after = str(others.pem_file(tmp_path / "after.pem"))
        assert await alter(broker, {"listener.name.ssl.ssl.truststore.location": after}) == ""
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(connect, port, session)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(speak, early, context)


def speak(plain: socket.socket, context: ssl.SSLContext) -> None:
    """Do a handshake, and wait for the first byte."""
    with plain, context.wrap_socket(plain, server_hostname="localhost") as one:
        if not one.recv(1):
            raise ConnectionError


@on_uvloop
async def test_a_renegotiation_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path, tls_settings(tmp_path)) as broker:
        port = broker.server.listeners[0].port
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_2"]
        done = await asyncio.to_thread(
            subprocess.run, command, input=b"R\n", capture_output=True, check=False, timeout=60
        )
        assert b"RENEGOTIATING" in done.stdout + done.stderr
        assert b"no renegotiation" in done.stderr
        assert await ask_versions(broker, trusting(tmp_path)) == 0


@on_uvloop
async def test_others_are_served_beside_many_handshakes_that_never_end(tmp_path: Path) -> None:
    whole = records(hello())
    given_settings = tls_settings(tmp_path) | {"odradek.tls.handshake.timeout.ms": "4000"}
    async with live(tmp_path, given_settings) as broker:
        port = broker.server.listeners[0].port
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(COUNT)]
        for number, (_, writer) in enumerate(opened):
            # Cut anywhere; every tenth comes whole, and what should follow does not.
            writer.write(whole[: None if number % 10 == 0 else number % len(whole)])
        assert await ask_versions(broker, trusting(tmp_path)) == 0
        await until(lambda: broker.metrics.authentications[FAILED] == COUNT)
        await until(lambda: not broker.server.connections)
        assert await ask_versions(broker, trusting(tmp_path)) == 0
        for _, writer in opened:
            writer.close()
        async with client(broker, tls=trusting(tmp_path)):
            await until(lambda: principals(broker))


_PARTS = (
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
)


def subject(common_name: str, part_count: int = 0) -> x509.Name:
    """Make a subject of any length; its first parts come last where it is printed."""
    kinds = [*_PARTS * (part_count // len(_PARTS)), NameOID.COMMON_NAME]
    texts = [*"x" * (len(kinds) - 1), common_name]
    return x509.Name(map(x509.NameAttribute, kinds, texts))


# A rule of Kafka's documentation, which takes seconds of such a name, and one that never ends.
SLOW_RULES = {
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L": subject("x", 320),
    r"RULE:^CN=(([a-z]+)+),.*$/$1/": subject("a" * 60),
}


@pytest.mark.parametrize("rule", SLOW_RULES, ids=["of Kafka", "endless"])
@on_uvloop
async def test_no_name_keeps_the_rules_of_principals_busy(
    tmp_path: Path, rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    given_settings = tls_settings(tmp_path, ssl_client_auth="required") | {
        "ssl.principal.mapping.rules": f"{rule},DEFAULT"
    }
    hostile = AUTHORITY.issue(subject=SLOW_RULES[rule])
    async with live(tmp_path, given_settings) as broker:
        begun_s = time.process_time()
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await ask_versions(broker, trusting(tmp_path, hostile))
        assert time.process_time() - begun_s < 1.0
        (line,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
        assert "ssl.principal.mapping.rules took more than" in line
        assert await ask_versions(broker, trusting(tmp_path, AUTHORITY.issue("ann"))) == 0


def test_a_step_that_takes_too_long_is_interrupted_and_nothing_else_after_it() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    for _ in range(3):
        with pytest.raises(TookTooLong), at_most(0.02):
            re.fullmatch(r"(a+)+b", "a" * 60)
    with at_most(0.02):
        assert re.fullmatch(r"(a+)+b", "aab")
    until_s = time.process_time() + 0.1
    while time.process_time() < until_s:
        pass
    assert signal.getsignal(signal.SIGVTALRM) is before


def test_a_type_of_an_attribute_has_numbers_with_an_end() -> None:
    uuid = b"\x69" + b"\x83" + b"\xff" * 17 + b"\x7f"  # 2.25.<128 bits>
    assert _dotted(uuid).startswith("2.25.")
    begun_s = time.process_time()
    with pytest.raises(ValueError, match="is too long"):
        _dotted(b"\x81" * 90_000 + b"\x01")
    assert time.process_time() - begun_s < 0.2  # 600 ms before


def test_a_name_takes_a_time_that_its_length_bounds() -> None:
    long = x509.Name([x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, ",+" * 32)] * 600)
    certificate = AUTHORITY.issue(subject=long).certificate.public_bytes(Encoding.DER)
    begun_s = time.process_time()
    assert len(subject_name(certificate)) > 40_000
    assert time.process_time() - begun_s < 0.2
