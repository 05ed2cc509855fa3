"""Logins that are not finished, and sessions that end or begin again in the middle of work."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

import pytest

from odradek.broker.composition import Broker
from odradek.broker.security.principals import Principal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import (
    ProduceRequest,
)
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.live import Client, batch, client, create, live, on_uvloop, until
from tests.broker.sasl_client import USERS, choose, log_in, plain_message, say, settings
from tests.broker.test_tls import settings as tls_settings
from tests.broker.test_tls import trusting
from tests.broker.transacting import Transactor
from tests.support.requests import fetching, producing

SASL, COUNT, CONNECTIONS = 1, 300, 15
SCRAM = "SCRAM-SHA-256"
BOTH = settings(f"PLAIN,{SCRAM}")
ENDING = {"connections.max.reauth.ms": "60000"}
METADATA = MetadataRequest(topics=None)
HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")
FAILED = ("SASL", "failed_authentication")


def proof(name: str) -> SaslAuthenticateRequest:
    """Return the message that logs somebody in."""
    return SaslAuthenticateRequest(auth_bytes=plain_message(name, USERS[name]))


def first_of_scram(size: int) -> bytes:
    """Return SCRAM's first message, of about so many bytes."""
    return b"n,,n=alice,r=" + b"r" * size


def produce(*values: bytes) -> ProduceRequest:
    return producing("t", batch(*values), acks=1)


@on_uvloop
async def test_others_log_in_beside_many_who_do_not_finish(tmp_path: Path) -> None:
    given = BOTH | {"odradek.authentication.timeout.ms": "2000"}
    async with live(tmp_path, given) as broker:
        port = broker.server.listeners[SASL].port
        opened: list[Client] = []
        for number in range(COUNT):
            # What it has to say it says at once, or its time might be over.
            one = Client(*await asyncio.open_connection("127.0.0.1", port))
            opened.append(one)
            if number % 4 == 0:
                continue  # says nothing
            assert (await choose(one, SCRAM)).error_code == 0
            if number % 4 == 2:  # in the middle of SCRAM
                assert (await say(one, first_of_scram(20_000))).error_code == 0
            elif number % 4 == 3:  # in the middle of a frame
                one.send_bytes(b"\x00\x07\x00\x00" + b"x" * 20_000)
        async with client(broker, listener=SASL) as other:
            assert (await log_in(other)).error_code == 0
            await until(lambda: broker.metrics.authentications[FAILED] == COUNT)
            await until(lambda: len(broker.server.connections) == 1)
            assert (await other.ask(METADATA, version=12)).brokers
        for one in opened:
            one.close()


@pytest.mark.parametrize(
    "stops_in", ["a login", "a frame of a login", "a frame", "a frame over TLS"]
)
@on_uvloop
async def test_the_memory_of_a_connection_is_freed_with_it(tmp_path: Path, stops_in: str) -> None:
    is_bare = stops_in.startswith("a frame") and not stops_in.endswith("login")
    tls = trusting(tmp_path) if stops_in.endswith("TLS") else None
    given = tls_settings(tmp_path) if tls else BOTH
    async with live(tmp_path, given) as broker:
        async with client(broker, listener=0, tls=tls) as one:
            assert (await one.ask(METADATA, version=12)).brokers  # modules that are loaded stay
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(CONNECTIONS):
                async with client(broker, listener=0 if is_bare else SASL, tls=tls) as one:
                    if is_bare:
                        assert (await one.ask(METADATA, version=12)).brokers
                    else:
                        await choose(one, SCRAM)
                    if stops_in == "a login":
                        await say(one, first_of_scram(400_000))
                    else:
                        one.send_bytes(b"\x00\x07\x00\x00" + b"x" * 400_000)
                        await one.drain()
                await until(lambda: not broker.server.connections)
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
        # It was up to 1.5 MB of each until the collector came by.
        assert kept < CONNECTIONS * 200_000


@on_uvloop
async def test_a_login_again_ends_the_wait_of_a_fetch(tmp_path: Path) -> None:
    async with live(tmp_path, BOTH | ENDING) as broker, client(broker, listener=SASL) as one:
        await create(broker, "t")
        await log_in(one)
        one.send(fetching("t", wait_ms=600_000), version=12)
        one.send(HANDSHAKE, version=1)
        one.send(proof("alice"), version=2)
        one.send(METADATA, version=12)
        answers = [(await one.receive())[1] for _ in range(4)]
        assert answers[0].error_code == answers[1].error_code == answers[2].error_code == 0
        assert answers[2].session_lifetime_ms == 60_000 and answers[3].brokers


@on_uvloop
async def test_a_login_again_leaves_a_transaction_as_it_is(tmp_path: Path) -> None:
    async with live(tmp_path, BOTH | ENDING) as broker, client(broker, listener=SASL) as one:
        await create(broker, "t")
        await log_in(one)
        payments = Transactor(one)
        assert await payments.init() == ErrorCode.NONE
        assert await payments.add("t", 0) == [0]
        assert await payments.produce("t", 0, b"a") == 0
        assert (await log_in(one)).error_code == 0
        assert await payments.produce("t", 0, b"b") == 0
        assert await payments.end(commit=True) == 0


@on_uvloop
async def test_nothing_of_what_is_sent_after_the_end_of_a_session_is_served(
    tmp_path: Path,
) -> None:
    async with live(tmp_path, BOTH | ENDING) as broker, client(broker, listener=SASL) as one:
        topic = await create(broker, "t")
        await log_in(one)
        assert (await one.ask(produce(b"before"), version=9)).responses
        (connection,) = broker.server.connections
        assert connection.gate is not None
        connection.gate._ends_at_s = 0.0
        one.send(*[produce(b"after")] * 50, version=9)
        assert await one.is_closed()
        assert log_end(broker, topic.name) == 1
        assert broker.metrics.authentications["SASL", "expired_connections_killed"] == 1


def log_end(broker: Broker, name: str) -> int:
    topic = broker.topics.get(name)
    assert topic is not None
    return topic.partitions[0].log_end_offset


@on_uvloop
async def test_no_request_is_served_during_a_second_login(tmp_path: Path) -> None:
    async with live(tmp_path, BOTH | ENDING) as broker, client(broker, listener=SASL) as one:
        topic = await create(broker, "t")
        await log_in(one)
        one.send(HANDSHAKE, version=1)
        one.send(produce(b"between"), version=9)
        one.send(proof("alice"), version=2)
        assert (await one.receive())[1].error_code == 0
        assert await one.is_closed()
        assert log_end(broker, topic.name) == 0
        assert broker.metrics.authentications["SASL", "failed_reauthentication"] == 1


@pytest.mark.parametrize("again", [1, 1_000])
@on_uvloop
async def test_a_storm_of_logins_is_served_once_a_second(tmp_path: Path, again: int) -> None:
    async with live(tmp_path, BOTH | ENDING) as broker, client(broker, listener=SASL) as one:
        await log_in(one)
        for _ in range(again):
            one.send(HANDSHAKE, version=1)
            one.send(proof("alice"), version=2)
        codes = [(await one.receive())[1].error_code for _ in range(2 * again)]
        assert codes[:2] == [0, 0]
        assert set(codes[2:]) <= {ErrorCode.ILLEGAL_SASL_STATE}
        assert broker.metrics.authentications["SASL", "successful_reauthentication"] == 1
        (connection,) = broker.server.connections
        assert connection.client.principal == Principal("User", "alice")
