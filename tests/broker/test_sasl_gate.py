"""A SASL listener serves nobody who has not logged in, and lets nobody take much meanwhile."""

from __future__ import annotations

import asyncio
import logging
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from odradek.broker.composition import Broker
from odradek.broker.observability.exposition.render import render
from odradek.broker.observability.exposition.snapshot import take_snapshot
from odradek.broker.security.principals import Principal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.wire import uvarint
from tests.broker.live import Client, client, live, on_uvloop, until
from tests.broker.sasl_client import USERS, choose, log_in, plain_message, say, settings

SASL = 1
VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=None)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@on_uvloop
async def test_a_client_that_has_logged_in_is_served_and_known(tmp_path: Path) -> None:
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        assert (await one.ask(VERSIONS, version=4)).error_code == 0
        answer = await log_in(one, "bob")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert (await one.ask(metadata(), version=12)).brokers
        (connection,) = broker.server.connections
        assert connection.client.principal == Principal("User", "bob")
        assert broker.metrics.authentications == {("SASL", "successful_authentication"): 1}


@pytest.mark.parametrize("version", [0, 1, 2])
@on_uvloop
async def test_all_versions_of_sasl_authenticate_log_in(tmp_path: Path, version: int) -> None:
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        assert (await log_in(one, version=version)).error_code == 0
        assert (await one.ask(metadata(), version=12)).brokers


@on_uvloop
async def test_after_version_0_messages_come_bare(tmp_path: Path) -> None:
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        assert (await choose(one, "PLAIN", version=0)).mechanisms == ["PLAIN"]
        one.send_bytes(framed(plain_message("alice", USERS["alice"])))
        assert await one.receive_frame() == b""
        assert (await one.ask(metadata(), version=12)).brokers


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (plain_message("alice", "wrong"), "Authentication failed: Invalid username or password"),
        (plain_message("eve", "x"), "Authentication failed: Invalid username or password"),
        (plain_message("", "x"), "Authentication failed: username not specified"),
        (plain_message("alice", ""), "Authentication failed: password not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            plain_message("alice", USERS["alice"], "bob"),
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
    ],
)
@on_uvloop
async def test_a_failed_login_is_answered_as_by_kafka_and_closes_the_connection(
    tmp_path: Path, message: bytes, told: str
) -> None:
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        await choose(one, "PLAIN")
        answer = await say(one, message)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == told
        assert await one.is_closed()
        assert broker.metrics.authentications == {("SASL", "failed_authentication"): 1}


@on_uvloop
async def test_a_mechanism_that_is_not_enabled_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        answer = await choose(one, "SCRAM-SHA-256")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN"]
        assert await one.is_closed()


def frames_out_of_place() -> dict[str, list[tuple[Any, int]]]:
    """Return requests by what is wrong with them, each with its version; the last one closes."""
    authenticate = SaslAuthenticateRequest(auth_bytes=plain_message("alice", USERS["alice"]))
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    return {
        "metadata first": [(metadata(), 12)],
        "metadata after ApiVersions": [(VERSIONS, 4), (metadata(), 12)],
        "metadata within the exchange": [(handshake, 1), (metadata(), 12)],
        "SaslAuthenticate first": [(authenticate, 2)],
        "ApiVersions twice": [(VERSIONS, 4), (VERSIONS, 4)],
        "ApiVersions within the exchange": [(handshake, 1), (VERSIONS, 4)],
    }


@pytest.mark.parametrize("name", frames_out_of_place())
@on_uvloop
async def test_anything_else_closes(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    *before, last = frames_out_of_place()[name]
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        for request, version in before:
            assert (await one.ask(request, version=version)).error_code == 0
        with caplog.at_level(logging.WARNING, "odradek.broker"):
            one.send(last[0], version=last[1])
            assert await one.is_closed()
        (told,) = caplog.messages
        assert told.startswith("refused authentication peer=127.0.0.1:")
        assert broker.metrics.request_total == 0


@on_uvloop
async def test_versions_are_not_refused_without_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable = ApiVersionsRequest(client_software_name="!", client_software_version="!")
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        for _ in range(11):
            answer = await one.ask(unreadable, version=3)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert await one.is_closed()
        assert "reason=ApiVersions failed more than 10 times" in caplog.text
        assert broker.metrics.authentications == {("SASL", "failed_authentication"): 1}


@on_uvloop
async def test_a_client_may_ask_repeatedly_for_the_versions_before_it_logs_in(
    tmp_path: Path,
) -> None:
    unreadable = ApiVersionsRequest(client_software_name="!", client_software_version="!")
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        for _ in range(3):
            assert (await one.ask(unreadable, version=3)).error_code
        assert (await one.ask(VERSIONS, version=3)).error_code == 0
        assert (await log_in(one)).error_code == 0


@pytest.mark.parametrize("key", [18, 36])
@on_uvloop
async def test_a_frame_full_of_tags_is_no_login(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: int
) -> None:
    # After a login so large a frame could hold them.
    count = 4_097
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        if key == 36:
            await choose(one, "PLAIN")
        head = struct.pack(">hhihB", key, 3 if key == 18 else 2, 1, -1, 0)
        body = b"\2a\2a" if key == 18 else b"\1"
        one.send_bytes(framed(head + body + uvarint(count) + bytes(2 * count)))
        assert await one.is_closed()
        assert "reason=no SASL request: too many tiny items" in caplog.text


@on_uvloop
async def test_requests_sent_ahead_of_a_failed_login_are_not_served(tmp_path: Path) -> None:
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        wrong = SaslAuthenticateRequest(auth_bytes=plain_message("alice", "wrong"))
        right = SaslAuthenticateRequest(auth_bytes=plain_message("alice", USERS["alice"]))
        one.send(SaslHandshakeRequest(mechanism="PLAIN"), version=1)
        one.send(wrong, right, version=2)
        one.send(metadata(), version=12)
        assert (await one.receive())[1].error_code == 0
        assert (await one.receive())[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await one.is_closed()
        assert broker.metrics.request_total == 0


@on_uvloop
async def test_the_answer_to_a_failed_login_is_held_back(tmp_path: Path) -> None:
    more = {"connection.failed.authentication.delay.ms": "200"}
    async with live(tmp_path, settings() | more) as broker, client(broker, listener=SASL) as one:
        await choose(one, "PLAIN")
        began_s = asyncio.get_running_loop().time()
        answer = await say(one, plain_message("alice", "wrong"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        # The loop's clock counts milliseconds.
        assert asyncio.get_running_loop().time() - began_s >= 0.19


@on_uvloop
async def test_failed_logins_of_an_address_hold_up_no_right_one(tmp_path: Path) -> None:
    # An answer that waits for this delay does not arrive within the patience of the test.
    more = {"connection.failed.authentication.delay.ms": "120000"}
    async with live(tmp_path, settings() | more) as broker, AsyncExitStack() as clients:
        for _ in range(20):
            guesser = await clients.enter_async_context(client(broker, listener=SASL))
            await choose(guesser, "PLAIN")
            wrong = SaslAuthenticateRequest(auth_bytes=plain_message("alice", "wrong"))
            guesser.send(wrong, version=2)
        await until(lambda: broker.metrics.authentications["SASL", "failed_authentication"] == 20)
        one = await clients.enter_async_context(client(broker, listener=SASL))
        assert (await log_in(one, "alice")).error_code == 0
        assert (await one.ask(metadata(), version=12)).brokers


@on_uvloop
async def test_a_silent_connection_is_closed_after_a_while(tmp_path: Path) -> None:
    # Long enough for its request to be answered on a busy machine.
    more = {"odradek.authentication.timeout.ms": "1500"}
    async with (
        live(tmp_path, settings() | more) as broker,
        client(broker, listener=SASL) as silent,
        client(broker) as other,
    ):
        assert (await silent.ask(VERSIONS, version=4)).error_code == 0
        assert await silent.is_closed()
        assert (await other.ask(metadata(), version=12)).brokers  # no login is asked for
        assert broker.metrics.authentications == {("SASL", "failed_authentication"): 1}


@on_uvloop
async def test_a_trickle_of_bytes_does_not_stretch_the_time(tmp_path: Path) -> None:
    more = {"odradek.authentication.timeout.ms": "200"}
    async with live(tmp_path, settings() | more) as broker, client(broker, listener=SASL) as one:
        one.send_bytes(struct.pack(">i", 100_000))
        closed = asyncio.ensure_future(one.is_closed())
        while not closed.done():  # if each byte gained time, it would never be
            one.send_bytes(b"x")
            await asyncio.wait([closed], timeout=0.02)
        assert await closed


@on_uvloop
async def test_a_frame_too_large_is_not_received(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        one.send_bytes(struct.pack(">i", 524_289))
        assert await one.is_closed()
        assert "sasl.server.max.receive.size is 524288" in caplog.text
        assert broker.metrics.authentications == {("SASL", "failed_authentication"): 1}


@on_uvloop
async def test_requests_may_be_large_after_the_login(tmp_path: Path) -> None:
    more = {"sasl.server.max.receive.size": "300"}
    async with live(tmp_path, settings() | more) as broker, client(broker, listener=SASL) as one:
        await log_in(one)
        one.client_id = "x" * 1000
        assert (await one.ask(metadata(), version=12)).brokers


@on_uvloop
async def test_a_flood_before_the_login_is_not_read(tmp_path: Path) -> None:
    more = {"connection.failed.authentication.delay.ms": "300"}
    async with live(tmp_path, settings() | more) as broker, client(broker, listener=SASL) as one:
        await choose(one, "PLAIN")
        one.send(SaslAuthenticateRequest(auth_bytes=plain_message("a", "b")), version=2)
        await until(lambda: broker.metrics.authentications)
        (connection,) = broker.server.connections
        assert not connection.transport.is_reading()
        answer = (await one.receive())[1]
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@on_uvloop
async def test_without_sasl_a_handshake_is_illegal(tmp_path: Path) -> None:
    async with live(tmp_path, settings()) as broker, client(broker) as one:
        for version in (0, 1):
            answer = await choose(one, "PLAIN", version)
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        told = await say(one, b"x")
        assert told.error_code == ErrorCode.ILLEGAL_SASL_STATE


@on_uvloop
async def test_without_an_end_a_login_is_not_begun_again(tmp_path: Path) -> None:
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        await log_in(one)
        assert (await choose(one, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await one.ask(metadata(), version=12)).brokers


@on_uvloop
async def test_logins_are_counted_in_the_metrics_from_the_start(tmp_path: Path) -> None:
    prefix = "kafka_server_socket_server_metrics_"
    async with live(tmp_path, settings()) as broker, client(broker, listener=SASL) as one:
        failed = f'{prefix}failed_authentication_total{{listener="SASL"}}'
        succeeded = f'{prefix}successful_authentication_total{{listener="SASL"}}'
        before = render(await take_snapshot(broker)).decode()
        assert f"{failed} 0.0" in before and f"{succeeded} 0.0" in before
        await log_in(one)
        async with client(broker, listener=SASL) as other:
            await choose(other, "PLAIN")
            await say(other, plain_message("alice", "wrong"))
        after = render(await take_snapshot(broker)).decode()
        assert f"{failed} 1.0" in after and f"{succeeded} 1.0" in after
        assert f'{prefix}expired_connections_killed_count{{listener="SASL"}} 0.0' in after


@on_uvloop
async def test_no_secret_reaches_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with live(tmp_path, settings()) as broker:
            for name, password in (("alice", USERS["alice"]), ("alice", "g-u-e-s-s")):
                async with client(broker, listener=SASL) as one:
                    await choose(one, "PLAIN")
                    await say(one, plain_message(name, password))
    assert "logged in peer=" in caplog.text
    assert "secret" not in caplog.text
    assert "g-u-e-s-s" not in caplog.text


def test_any_bytes_are_refused_without_an_error_here(tmp_path: Path) -> None:
    """One broker has all examples, each in a connection of its own."""
    reports: list[dict[str, Any]] = []

    async def start(stack: AsyncExitStack) -> Broker:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, report: reports.append(report))
        return await stack.enter_async_context(live(tmp_path, settings()))

    async def send(broker: Broker, data: bytes, chosen: bool) -> None:
        async with client(broker, listener=SASL) as one:
            if chosen:
                await choose(one, "PLAIN")
            one.send_bytes(data)
            one.end()
            await _to_the_end(one)
        await until(lambda: not broker.server.connections)
        assert broker.metrics.failed_requests == 0
        assert ("SASL", "successful_authentication") not in broker.metrics.authentications
        assert not reports, reports

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = AsyncExitStack()
        broker = runner.run(start(stack))

        @hypothesis_settings(
            max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        )
        @given(
            st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.booleans(), st.booleans()
        )
        def is_refused(frames: list[bytes], cut: bool, chosen: bool) -> None:
            data = b"".join(map(framed, frames))
            runner.run(send(broker, data[:-1] if cut else data, chosen))

        try:
            is_refused()
        finally:
            runner.run(stack.aclose())
    assert not reports, reports


async def _to_the_end(one: Client) -> None:
    while not await one.is_closed():
        pass


@on_uvloop
async def test_a_session_that_has_ended_is_closed_at_its_next_request(tmp_path: Path) -> None:
    more = {"connections.max.reauth.ms": "1000"}
    async with live(tmp_path, settings() | more) as broker, client(broker, listener=SASL) as one:
        assert (await log_in(one)).session_lifetime_ms == 1000
        assert (await one.ask(metadata(), version=12)).brokers
        loop = asyncio.get_running_loop()
        (connection,) = broker.server.connections
        assert connection.gate is not None
        ended = loop.create_future()
        loop.call_at(connection.gate._ends_at_s, ended.set_result, None)
        await ended
        assert not connection.is_lost  # as long as nothing is asked
        one.send(metadata(), version=12)
        assert await one.is_closed()
        assert broker.metrics.authentications["SASL", "expired_connections_killed"] == 1


@on_uvloop
async def test_a_login_goes_on_by_another_one(tmp_path: Path) -> None:
    more = {"connections.max.reauth.ms": "60000"}
    async with live(tmp_path, settings() | more) as broker, client(broker, listener=SASL) as one:
        await log_in(one)
        (connection,) = broker.server.connections
        assert connection.gate is not None
        connection.gate._ends_at_s = 0.0  # long ago
        assert (await log_in(one)).session_lifetime_ms == 60_000
        assert (await one.ask(metadata(), version=12)).brokers
        counts = broker.metrics.authentications
        assert counts["SASL", "successful_reauthentication"] == 1
        # Within a second Kafka takes no other.
        assert (await choose(one, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE


@on_uvloop
async def test_a_client_that_logs_in_again_keeps_its_principal(tmp_path: Path) -> None:
    more = {"connections.max.reauth.ms": "60000"}
    async with live(tmp_path, settings() | more) as broker, client(broker, listener=SASL) as one:
        await log_in(one, "alice")
        answer = await log_in(one, "bob")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert await one.is_closed()
        assert broker.metrics.authentications["SASL", "failed_reauthentication"] == 1


@on_uvloop
async def test_a_client_that_logs_in_again_keeps_its_mechanism(tmp_path: Path) -> None:
    more = {"connections.max.reauth.ms": "60000"}
    both = settings("PLAIN,SCRAM-SHA-256") | more
    async with live(tmp_path, both) as broker, client(broker, listener=SASL) as one:
        await log_in(one)
        assert (await choose(one, "SCRAM-SHA-256")).error_code == 0
        one.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), version=2)
        assert await one.is_closed()
        assert broker.metrics.authentications["SASL", "failed_reauthentication"] == 1
