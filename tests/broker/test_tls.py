"""TLS listeners: who is let in and as whom, who is not and why, and what each may cost."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.broker.composition import Broker
from odradek.broker.security.principals import ANONYMOUS, Principal
from odradek.config.errors import ConfigError
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from tests.broker.certificates import Authority, Identity
from tests.broker.live import append, batch, client, create, live, on_uvloop, until
from tests.broker.sasl_client import jaas, log_in
from tests.support.requests import fetching, producing

AUTHORITY = Authority()
SERVER = AUTHORITY.issue()
FAILED = ("SSL", "failed_authentication")
LARGE_BYTES = 3_000_000


def settings(path: Path, server: Identity = SERVER, **more: str) -> dict[str, str]:
    """Settings of a broker that listens with TLS first, then without."""
    return {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.pem_file(path / "server.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(AUTHORITY.pem_file(path / "ca.pem")),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def trusting(
    path: Path, identity: Identity | None = None, authority: Authority = AUTHORITY
) -> ssl.SSLContext:
    """A client's context: it trusts an authority, and shows a certificate where it has one."""
    context = ssl.create_default_context(cadata=authority.pem())
    if identity is not None:
        context.load_cert_chain(identity.pem_file(path / "client.pem"))
    return context


def principals(broker: Broker) -> list[Principal]:
    """Who is connected."""
    return [one.client.principal for one in broker.server.connections]


async def ask_versions(broker: Broker, tls: ssl.SSLContext) -> int:
    """Connect, ask, and return the error code of the answer."""
    async with client(broker, tls=tls) as one:
        response = await one.ask(ApiVersionsRequest(), version=0)
    return int(response.error_code)


@on_uvloop
async def test_requests_are_answered_over_tls(tmp_path: Path) -> None:
    async with live(tmp_path, settings(tmp_path)) as broker:
        async with client(broker, tls=trusting(tmp_path)) as one:
            response = await one.ask(MetadataRequest(topics=None), version=12)
            assert response.brokers[0].port == broker.server.listeners[0].port
            assert principals(broker) == [ANONYMOUS]
        await until(lambda: not broker.server.connections)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_uvloop
async def test_large_requests_and_responses_come_through_whole(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    value = bytes(range(256)) * (LARGE_BYTES // 256)
    context = trusting(tmp_path)
    context.minimum_version = context.maximum_version = version
    more = {"message_max_bytes": "10000000"}
    async with (
        live(tmp_path, settings(tmp_path, **more)) as broker,
        client(broker, tls=context) as one,
    ):
        topic = await create(broker, "t")
        sent = batch(value)
        for _ in range(3):
            answer = await one.ask(producing("t", sent), version=9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        fetched = await one.ask(fetching("t", size_max=10 * LARGE_BYTES), version=11)
        records = bytes(fetched.responses[0].partitions[0].records)
        assert len(records) == topic.logs[0].size_bytes
        assert records.count(value) == 3


@on_uvloop
async def test_a_client_that_does_not_read_is_held_and_costs_no_more_than_was_written(
    tmp_path: Path,
) -> None:
    async with live(tmp_path, settings(tmp_path)) as broker:
        topic = await create(broker, "t")
        for _ in range(20):
            append(topic.logs[0], batch(b"x" * 900_000))
        async with client(broker, tls=trusting(tmp_path)) as one:
            for _ in range(4):
                one.send(fetching("t", size_max=20_000_000), version=11)
            await one.drain()
            (connection,) = broker.server.connections
            await until(lambda: connection.transport.get_write_buffer_size() > 1_000_000)
            # One response at most is written and not read, whatever was asked for.
            for _ in range(20):
                await asyncio.sleep(0)
                assert connection.transport.get_write_buffer_size() < 21_000_000
            for _ in range(4):
                response = (await one.receive())[1]
                assert len(response.responses[0].partitions[0].records) > 17_000_000


# --- who it is --------------------------------------------------------------------------------


@pytest.mark.parametrize("auth", ["requested", "required"])
@on_uvloop
async def test_a_client_certificate_names_the_principal(tmp_path: Path, auth: str) -> None:
    alice = AUTHORITY.issue("alice", unit="Sales")
    given = settings(tmp_path, ssl_client_auth=auth)
    async with (
        live(tmp_path, given) as broker,
        client(broker, tls=trusting(tmp_path, alice)) as one,
    ):
        await one.ask(ApiVersionsRequest(), version=0)
        assert principals(broker) == [Principal("User", "CN=alice,OU=Sales")]


@on_uvloop
async def test_rules_map_the_name_of_a_certificate(tmp_path: Path) -> None:
    rules = "RULE:^CN=([^,]*),OU=Sales$/$1@sales/U,RULE:^CN=(b.*)$/$1/"
    given = settings(
        tmp_path, ssl_client_auth="required", ssl_principal_mapping_rules=rules
    )
    async with live(tmp_path, given) as broker:
        for name, unit, wanted in (("alice", "Sales", "ALICE@SALES"), ("bob", None, "bob")):
            identity = AUTHORITY.issue(name, unit=unit)
            async with client(broker, tls=trusting(tmp_path, identity)) as one:
                await one.ask(ApiVersionsRequest(), version=0)
                assert Principal("User", wanted) in principals(broker)


@on_uvloop
async def test_a_client_without_the_requested_certificate_is_anonymous(tmp_path: Path) -> None:
    given = settings(tmp_path, ssl_client_auth="requested")
    async with live(tmp_path, given) as broker, client(broker, tls=trusting(tmp_path)) as one:
        await one.ask(ApiVersionsRequest(), version=0)
        assert principals(broker) == [ANONYMOUS]


@on_uvloop
async def test_each_listener_has_settings_of_its_own(tmp_path: Path) -> None:
    other = AUTHORITY.issue("another")
    given = settings(tmp_path) | {
        "listeners": "SSL://127.0.0.1:0,INNER://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,INNER:SSL",
        "listener.name.inner.ssl.client.auth": "required",
        "listener.name.inner.ssl.keystore.location": str(other.pem_file(tmp_path / "i.pem")),
    }
    async with live(tmp_path, given) as broker:
        assert await ask_versions(broker, trusting(tmp_path)) == 0
        alice = AUTHORITY.issue("alice")
        async with client(broker, listener=1, tls=trusting(tmp_path, alice)) as one:
            await one.ask(ApiVersionsRequest(), version=0)
            assert Principal("User", "CN=alice") in principals(broker)


# --- who is not let in ------------------------------------------------------------------------


async def refused(broker: Broker, tls: ssl.SSLContext) -> None:
    """Fail to connect, or lose the connection at the first request (TLS 1.3)."""
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await ask_versions(broker, tls)


REFUSALS = {
    "no certificate": (None, "the client sent no certificate"),
    "another authority": (Authority("Another").issue("mallory"), "unable to get local issuer"),
    "expired": (AUTHORITY.issue("late", days=(-3, -1)), "certificate has expired"),
    "not yet valid": (AUTHORITY.issue("early", days=(1, 3)), "certificate is not yet valid"),
    "no rule": (AUTHORITY.issue("nobody"), "no rule of ssl.principal.mapping.rules applies"),
}


@pytest.mark.parametrize("case", REFUSALS)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_uvloop
async def test_a_client_without_a_good_certificate_is_refused_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str, version: ssl.TLSVersion
) -> None:
    identity, reason = REFUSALS[case]
    given = settings(
        tmp_path,
        ssl_client_auth="required",
        ssl_principal_mapping_rules="RULE:^CN=([a-m].*)$/$1/",
    )
    context = trusting(tmp_path, identity)
    context.minimum_version = context.maximum_version = version
    async with live(tmp_path, given) as broker:
        with caplog.at_level(logging.WARNING):
            await refused(broker, context)
            await until(lambda: not broker.server.connections)
        assert broker.metrics.authentications[FAILED] == 1
        (line,) = (one.getMessage() for one in caplog.records)
        assert line.startswith("refused TLS handshake peer=127.0.0.1:")
        assert reason in line


@on_uvloop
async def test_a_client_that_does_not_trust_the_broker_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(tmp_path, settings(tmp_path)) as broker:
        context = trusting(tmp_path, authority=Authority("Another"))
        port = broker.server.listeners[0].port

        def connect() -> None:  # asyncio's own client sends no alert
            with (
                socket.create_connection(("127.0.0.1", port)) as plain,
                pytest.raises(ssl.SSLCertVerificationError),
            ):
                context.wrap_socket(plain, server_hostname="127.0.0.1")

        await asyncio.to_thread(connect)
        await until(lambda: broker.metrics.authentications[FAILED])
    (line,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert "the client refused the broker's certificate" in line


@on_uvloop
async def test_plain_text_at_a_tls_listener_is_named_as_such_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(tmp_path, settings(tmp_path)) as broker:
        async with client(broker) as one:
            one.send(ApiVersionsRequest(), version=0)
            assert await one.is_closed()
        await until(lambda: not broker.server.connections)
    (line,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert "the client does not speak TLS" in line


@on_uvloop
async def test_tls_at_a_listener_without_it_is_named_as_such_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with live(tmp_path, settings(tmp_path)) as broker:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with client(broker, listener=1, tls=trusting(tmp_path)):
                pass
        await until(lambda: not broker.server.connections)
    (line,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert "TLS was sent to a listener without it" in line


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
@on_uvloop
async def test_a_handshake_that_does_not_get_on_ends(tmp_path: Path, sent: bytes) -> None:
    given = settings(tmp_path) | {"odradek.tls.handshake.timeout.ms": "50"}
    async with live(tmp_path, given) as broker, client(broker) as one:
        one.send_bytes(sent)
        assert await one.is_closed()
        assert broker.metrics.authentications[FAILED] == 1


@on_uvloop
async def test_of_handshakes_that_do_not_get_on_only_so_many_are_kept(tmp_path: Path) -> None:
    given = settings(tmp_path) | {"odradek.tls.handshakes.max": "5"}
    async with live(tmp_path, given) as broker:
        port = broker.server.listeners[0].port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        await until(lambda: broker.metrics.authentications[FAILED] == 3)
        await until(lambda: len(broker.server.connections) == 5)
        assert await ask_versions(broker, trusting(tmp_path)) == 0
        for _, writer in silent:
            writer.close()
        await until(lambda: not broker.server.connections)


@on_uvloop
async def test_a_client_that_connects_and_goes_is_no_failure(tmp_path: Path) -> None:
    async with live(tmp_path, settings(tmp_path)) as broker:
        async with client(broker):
            await until(lambda: broker.server.connections)
        await until(lambda: not broker.server.connections)
        assert not broker.metrics.authentications[FAILED]


@on_uvloop
async def test_a_stop_ends_handshakes_and_connections(tmp_path: Path) -> None:
    async with (
        live(tmp_path, settings(tmp_path)) as broker,
        client(broker) as silent,
        client(broker, tls=trusting(tmp_path)) as one,
    ):
        await one.ask(ApiVersionsRequest(), version=0)
        await broker.server.turn_away()
        closing = asyncio.ensure_future(broker.server.close(5.0))
        assert await one.is_closed()
        assert await silent.is_closed()
        one.close()
        await closing
        assert not broker.server.connections


# --- what a start refuses ---------------------------------------------------------------------


def problems_of(values: Mapping[str, str], path: Path) -> str:
    """Start a broker that cannot start; return why."""

    path.mkdir()

    async def start() -> None:
        async with live(path, values):
            pass

    with pytest.raises(ConfigError) as found:
        asyncio.run(start())
    return str(found.value)


def changed(path: Path, **more: str | None) -> dict[str, str]:
    """Return the settings with some others, or without them."""
    values: dict[str, str | None] = {**settings(path)}
    values |= {name.replace("_", "."): value for name, value in more.items()}
    return {name: value for name, value in values.items() if value is not None}


def test_a_start_names_the_option_and_the_file_that_is_wrong(tmp_path: Path) -> None:
    locked = SERVER.pem_file(tmp_path / "locked.pem", "a password")
    other = tmp_path / "other.pem"
    other.write_text(SERVER.key_pem() + AUTHORITY.pem())
    jks = tmp_path / "store.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed")
    p12 = SERVER.pkcs12_file(tmp_path / "server.p12", "right")
    store = {"ssl_keystore_password": "wrong", "ssl_keystore_type": "PKCS12"}
    cases = [
        ({"ssl_keystore_location": None}, "set ssl.keystore.location and ssl.keystore.type"),
        ({"ssl_keystore_location": "/none.pem"}, "/none.pem cannot be read: No such file"),
        ({"ssl_keystore_location": str(tmp_path / "ca.pem")}, "no private key found"),
        ({"ssl_keystore_location": str(locked)}, "is encrypted, set ssl.key.password"),
        (
            {"ssl_keystore_location": str(locked), "ssl_key_password": "wrong"},
            "is ssl.key.password its password?",
        ),
        ({"ssl_keystore_location": str(other)}, "does not belong to the first certificate"),
        (
            {**store, "ssl_keystore_type": "JKS", "ssl_keystore_location": str(jks)},
            "is a JKS store, Java's own format, which is not read: convert it to PKCS12",
        ),
        ({**store, "ssl_keystore_location": str(p12)}, "ssl.keystore.password is not its"),
        ({"ssl_keystore_type": "JKS"}, "key store password is not specified"),
        ({"ssl_truststore_location": None, "ssl_client_auth": "required"}, "needs certificates"),
        ({"ssl_truststore_location": "/none.pem"}, "ssl.truststore.location=/none.pem cannot"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "TLSv1.1 is not supported"),
        ({"ssl_cipher_suites": "TLS_NO_SUCH"}, "TLS_NO_SUCH is not among OpenSSL's"),
        ({"ssl_principal_mapping_rules": "RULE:^CN=(.*$/$1/"}, "is not understood"),
    ]
    for number, (more, wanted) in enumerate(cases):
        problem = problems_of(changed(tmp_path, **more), tmp_path / str(number))
        assert wanted in problem, more
        assert "wrong" not in problem, more
        assert "\n" not in problem


# --- with SASL --------------------------------------------------------------------------------


def sasl_settings(path: Path, **more: str) -> dict[str, str]:
    """Settings of a broker that listens with TLS and asks for a login."""
    return settings(path) | {
        "listeners": "SSL://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SASL_SSL",
        "listener.name.ssl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.ssl.plain.sasl.jaas.config": jaas(),
        **more,
    }


@on_uvloop
async def test_the_login_over_tls_gives_the_principal_and_not_the_certificate(
    tmp_path: Path,
) -> None:
    given = sasl_settings(tmp_path, **{"listener.name.ssl.ssl.client.auth": "required"})
    certified = trusting(tmp_path, AUTHORITY.issue("bob"))
    async with live(tmp_path, given) as broker, client(broker, tls=certified) as one:
        assert (await log_in(one)).error_code == 0
        assert principals(broker) == [Principal("User", "alice")]
        counts = broker.metrics.authentications
        assert counts["SSL", "successful_authentication"] == 1


@on_uvloop
async def test_of_listeners_with_sasl_only_their_own_settings_ask_for_certificates(
    tmp_path: Path,
) -> None:
    given = sasl_settings(tmp_path, **{"ssl.client.auth": "required"})
    async with live(tmp_path, given) as broker, client(broker, tls=trusting(tmp_path)) as one:
        assert (await log_in(one)).error_code == 0
    given |= {"listener.name.ssl.ssl.client.auth": "required"}
    async with live(tmp_path, given) as broker:
        await refused(broker, trusting(tmp_path))
