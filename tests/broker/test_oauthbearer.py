"""Logins by tokens over the wire: by librdkafka, and message by message."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.composition import Broker
from odradek.broker.security.principals import Principal
from odradek.broker.security.sasl.exchange import AuthenticationFailed
from odradek.broker.security.sasl.oauthbearer import ClientFirst, read_first
from odradek.config.effective import resolve_broker
from odradek.config.errors import ConfigError
from odradek.config.resolution import Layer, Source
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest
from tests.broker.live import PATIENCE_S, Client, client, live, on_uvloop, until
from tests.broker.provider import (
    AUDIENCE,
    ISSUER,
    KEYS,
    OTHER_KEY,
    key_set,
    public_jwk,
    serving,
    token,
    wrong_tokens,
)
from tests.broker.sasl_client import choose, say
from tests.broker.traced import peak_bytes

SASL = 1
WRONG = wrong_tokens()
REFUSAL = b'{"status":"invalid_token"}'


def settings(url: str, **more: str) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        **more,
    }


def first_message(text: str, asked_for: str = "", extensions: str = "") -> bytes:
    acts_as = f"a={asked_for}" if asked_for else ""
    return f"n,{acts_as},\x01auth=Bearer {text}\x01{extensions}\x01".encode()


async def send(one: Client, text: str, **more: str) -> Any:
    assert (await choose(one, "OAUTHBEARER")).error_code == 0
    return await say(one, first_message(text, **more))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(KEYS)
    return path


@on_uvloop
async def test_a_login_lasts_as_long_as_its_token(tmp_path: Path) -> None:
    with serving() as server:
        async with live(tmp_path, settings(server.url)) as broker:
            await until(lambda: server.asked == 1)  # at the start already
            async with client(broker, listener=SASL) as one:
                answer = await send(one, token(exp=int(time.time()) + 60), asked_for="alice")
                assert (answer.error_code, answer.auth_bytes) == (0, b"")
                assert 55_000 < answer.session_lifetime_ms <= 60_000
                (connection,) = broker.server.connections
                assert connection.client.principal == Principal("User", "alice")
                assert (await one.ask(MetadataRequest(topics=None), version=12)).brokers
            assert server.asked == 1


@on_uvloop
async def test_extensions_are_let_in(tmp_path: Path, file: Path) -> None:
    more = "logicalCluster=lkc-1\x01trace=a b\tc\x01"
    async with (
        live(tmp_path, settings(file.as_uri())) as broker,
        client(broker, listener=SASL) as one,
    ):
        assert (await send(one, token(), extensions=more)).error_code == 0


@on_uvloop
async def test_a_token_that_is_wrong_is_refused_with_kafkas_words(
    tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with live(tmp_path, settings(file.as_uri())) as broker:
        for number, (what, text) in enumerate(WRONG.items(), 1):
            async with client(broker, listener=SASL) as one:
                answer = await send(one, text)
                assert (answer.error_code, answer.auth_bytes) == (0, REFUSAL), what
                # Nothing but the end comes after a refusal, and surely no other token.
                last = await say(one, b"\x01" if number % 2 else first_message(token()))
                assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert last.error_message == REFUSAL.decode()
                assert await one.is_closed()
        counted = broker.metrics.authentications
        assert counted == {("SASL", "failed_authentication"): len(WRONG)}
    lines = [line for line in caplog.messages if "refused authentication" in line]
    assert len(lines) == len(WRONG)
    assert all("reason=invalid token: " in line for line in lines)
    for text in WRONG.values():
        signature = text.rsplit(".", 1)[-1]
        assert len(signature) < 20 or signature not in caplog.text


@on_uvloop
async def test_nobody_acts_as_another(tmp_path: Path, file: Path) -> None:
    async with (
        live(tmp_path, settings(file.as_uri())) as broker,
        client(broker, listener=SASL) as one,
    ):
        answer = await send(one, token(), asked_for="bob")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == (
            "Authentication failed: Client requested an authorization id (bob) that is "
            "different from the token's principal name (alice)"
        )


@on_uvloop
async def test_a_new_key_of_the_provider_is_found_at_the_first_token(tmp_path: Path) -> None:
    with serving() as server:
        async with live(tmp_path, settings(server.url)) as broker:
            async with client(broker, listener=SASL) as one:  # the first keys are there
                assert (await send(one, token())).auth_bytes == b""
            server.body = key_set(public_jwk(OTHER_KEY, "new"))
            async with client(broker, listener=SASL) as one:
                assert (await send(one, token(OTHER_KEY, key_id="new"))).auth_bytes == b""


@on_uvloop
async def test_keys_that_cannot_be_fetched_are_reported_and_keep_nobody_else_out(
    tmp_path: Path, file: Path
) -> None:
    file.unlink()  # noqa: ASYNC240
    async with live(tmp_path, settings(file.as_uri())) as broker:
        await until(lambda: any("keys of tokens" in one for one in broker.problems()))
        async with client(broker, listener=SASL) as one:
            assert (await send(one, token())).auth_bytes == REFUSAL
        async with client(broker) as one:
            assert (await one.ask(MetadataRequest(topics=None), version=12)).brokers
        file.write_bytes(KEYS)  # noqa: ASYNC240
        await until(lambda: not broker.problems())
        async with client(broker, listener=SASL) as one:
            assert (await send(one, token())).auth_bytes == b""


def librdkafka(port: int, make: str, errors: list[str]) -> AdminClient:
    def answer(_: str) -> tuple[str, float]:
        return make, time.time() + 300

    config: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": answer,
        "error_cb": lambda error: errors.append(error.str()),
        "log_level": 0,
    }
    return AdminClient(config)


def port_of(broker: Broker) -> int:
    return broker.server.listeners[SASL].port


@on_uvloop
async def test_librdkafka_logs_in_and_is_refused(tmp_path: Path, file: Path) -> None:
    loop = asyncio.get_running_loop()
    async with live(tmp_path, settings(file.as_uri())) as broker:
        port = port_of(broker)
        right = librdkafka(port, token(), [])
        found = await loop.run_in_executor(None, lambda: right.list_topics(timeout=PATIENCE_S))
        assert len(found.brokers) == 1
        errors: list[str] = []
        wrong = librdkafka(port, WRONG["wrong audience"], errors)
        with pytest.raises(KafkaException):
            await loop.run_in_executor(None, lambda: wrong.list_topics(timeout=3))

        def is_refused() -> bool:
            wrong.poll(0)
            return any("invalid_token" in error for error in errors)

        await until(is_refused)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "has no keys to check tokens with: set"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://a/b"}, "begins with none of http:, https:"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https:///x"}, "names no host"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://[x"}, "is not a URL"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file://host/x"}, "names no file here"),
        ({"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "must be at least 1"),
        ({"sasl.oauthbearer.clock.skew.seconds": "-1"}, "must be at least 0"),
        ({"sasl.oauthbearer.sub.claim.name": " "}, "must not be empty"),
        (
            {"listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "x"},
            "listener SASL: sasl.oauthbearer.jwks.endpoint.url begins with none of",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_before_the_start(
    more: Mapping[str, str], message: str
) -> None:
    values = settings("https://idp.example/certs") | dict(more)
    with pytest.raises(ConfigError) as refused:
        resolve_broker([Layer(Source.STATIC_BROKER, values)])
    assert message in str(refused.value)


def test_a_listener_may_have_a_provider_of_its_own() -> None:
    values = settings("")
    values |= {
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "https://a/certs",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        ),
    }
    resolve_broker([Layer(Source.STATIC_BROKER, values)])


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer a\x01\x01",
        b"n,b=x,\x01auth=Bearer a\x01\x01",
        b"n,a=,\x01auth=Bearer a\x01\x01",
        b"n,a=x=y,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,,\x01auth=Bearer a\x01e1=x\x01\x01",
        b"n,,\x01auth=Bearer a\x01e=\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer a\x01\x01\x01",
    ],
)
def test_an_invalid_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        read_first(message)


def test_the_scheme_is_bearer_in_any_case() -> None:
    for scheme in ("bearer", "BEARER"):
        message = f"n,a=al=2Cice,\x01a=b\x01auth={scheme}   a.b.c==\x01\x01".encode()
        assert read_first(message) == ClientFirst("a.b.c==", "al=2Cice")


@pytest.mark.parametrize(
    "message",
    [
        b"n,a=" + b"a" * 500_000 + b",\x01\x01",
        b"n,a=" + b"=2C" * 160_000 + b",\x01auth=Bearer a\x01\x01",
        b"n,,\x01" + b"a=b\x01" * 120_000 + b"\x01",
        b"n,,\x01" + b"a=b\x01" * 120_000,
        b"n,,\x01auth=Bearer " + b" " * 500_000 + b"\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 500_000 + b"!\x01\x01",
    ],
    ids=lambda message: message[:20].decode() + "…",
)
def test_a_first_message_takes_memory_by_its_length_alone(message: bytes) -> None:
    def read() -> None:
        with suppress(AuthenticationFailed):
            read_first(message)

    assert peak_bytes(read) < 6 * len(message)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_first_message_or_none(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        read_first(message)
    with pytest.raises(AuthenticationFailed):
        read_first(b"n,,\x01auth=Bearer " + message)
