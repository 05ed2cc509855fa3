"""Certificates of a running broker: taken up by AlterConfigs, by SIGHUP, or from changed files."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography import x509

from odradek.broker.composition import Broker
from odradek.broker.observability.exposition.snapshot import take_snapshot
from odradek.broker.security.principals import Principal
from odradek.config.errors import ConfigError
from odradek.config.resolution import Layer, Source
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.certificates import LOOPBACK, Authority, Identity
from tests.broker.live import client, live, on_uvloop
from tests.broker.test_tls import AUTHORITY, SERVER, principals, settings, trusting
from tests.support.requests import altering

BROKER_RESOURCE = 4
LOCATION = "listener.name.ssl.ssl.keystore.location"
INVALID_REQUEST = 42


async def alter(broker: Broker, values: Mapping[str, str], *, checks: bool = False) -> str:
    """Set settings of the broker; return what was wrong, "" when nothing was."""
    request = altering(str(broker.node_id), values, BROKER_RESOURCE, validate_only=checks)
    async with client(broker, listener=1) as one:
        (answer,) = (await one.ask(request, version=1)).responses
    assert answer.error_code in (0, INVALID_REQUEST)
    return answer.error_message or ""


def shown_by(broker: Broker) -> bytes:
    """Connect in a thread's way, and return the certificate that the broker shows."""
    port = broker.server.listeners[0].port
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port), timeout=60))


async def shows(broker: Broker) -> x509.Certificate:
    """Return the certificate that the broker shows to a new connection."""
    return x509.load_der_x509_certificate(await asyncio.to_thread(shown_by, broker))


@on_uvloop
async def test_new_connections_see_the_new_certificate_and_old_ones_go_on(
    tmp_path: Path,
) -> None:
    renewed = AUTHORITY.issue()
    async with (
        live(tmp_path, settings(tmp_path)) as broker,
        client(broker, tls=trusting(tmp_path)) as old,
    ):
        await old.ask(ApiVersionsRequest(), version=0)
        path = renewed.pem_file(tmp_path / "renewed.pem")
        assert await alter(broker, {LOCATION: str(path)}) == ""
        assert await shows(broker) == renewed.certificate
        await old.ask(ApiVersionsRequest(), version=0)
    async with live(tmp_path, settings(tmp_path)) as broker:  # it is remembered
        assert await shows(broker) == renewed.certificate


@on_uvloop
async def test_a_file_that_changed_is_read_with_the_same_name_set_again(tmp_path: Path) -> None:
    async with live(tmp_path, settings(tmp_path)) as broker:
        renewed = AUTHORITY.issue()
        path = renewed.pem_file(tmp_path / "server.pem")
        assert await shows(broker) == SERVER.certificate
        assert await alter(broker, {LOCATION: str(path)}, checks=True) == ""
        assert await shows(broker) == SERVER.certificate
        assert await alter(broker, {LOCATION: str(path)}) == ""
        assert await shows(broker) == renewed.certificate


@on_uvloop
async def test_a_certificate_may_come_within_the_setting(tmp_path: Path) -> None:
    given = {
        name: value
        for name, value in settings(tmp_path).items()
        if name != "ssl.keystore.location"
    }
    key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    given |= {key: SERVER.key_pem(), chain: SERVER.chain_pem()}
    async with live(tmp_path, given) as broker:
        assert await shows(broker) == SERVER.certificate
        renewed = AUTHORITY.issue()
        own = {key: renewed.key_pem(), chain: renewed.chain_pem()}
        prefixed = {f"listener.name.ssl.{name}": value for name, value in own.items()}
        assert await alter(broker, prefixed) == ""
        assert await shows(broker) == renewed.certificate


def _broken(path: Path) -> None:
    (path / "server.pem").write_text("nothing of use")


def _removed(path: Path) -> None:
    (path / "server.pem").unlink()


def _of_another(path: Path) -> None:
    AUTHORITY.issue("another").pem_file(path / "server.pem")


def _for_fewer(path: Path) -> None:
    AUTHORITY.issue(hosts=("127.0.0.1",)).pem_file(path / "server.pem")


SPOILED: dict[str, tuple[Callable[[Path], None], str]] = {
    "broken": (_broken, "no private key found"),
    "removed": (_removed, "cannot be read: No such file"),
    "another name": (_of_another, "Keystore DistinguishedName does not match"),
    "fewer hosts": (_for_fewer, "Keystore SubjectAltNames do not match: the new certificate"),
}


@pytest.mark.parametrize("case", SPOILED)
@on_uvloop
async def test_a_store_that_does_not_do_is_refused_and_the_old_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    spoil, reason = SPOILED[case]
    async with live(tmp_path, settings(tmp_path)) as broker:
        tls = broker.security.tls
        assert tls is not None
        spoil(tmp_path)
        with caplog.at_level(logging.ERROR):
            tls.look_at_files()
            tls.look_at_files()
        (line,) = (one.getMessage() for one in caplog.records)
        assert line.startswith("kept the certificates in force: listener SSL: ")
        assert reason in line
        assert any(reason in one for one in broker.problems())
        assert reason in await alter(broker, {LOCATION: str(tmp_path / "server.pem")})
        with pytest.raises(ConfigError, match="listener SSL"):
            await broker.reload(Layer(Source.STATIC_BROKER, settings_of(broker)))
        assert await shows(broker) == SERVER.certificate
        SERVER.pem_file(tmp_path / "server.pem")
        tls.look_at_files()
        assert not broker.problems()


def settings_of(broker: Broker) -> Mapping[str, str]:
    """Return the settings that a broker was started with."""
    return next(
        one.values for one in broker.configs.layers if one.source is Source.STATIC_BROKER
    )


@on_uvloop
async def test_names_may_change_where_that_is_allowed(tmp_path: Path) -> None:
    given = settings(tmp_path, ssl_allow_dn_changes="true", ssl_allow_san_changes="true")
    async with live(tmp_path, given) as broker:
        other = AUTHORITY.issue("another", hosts=("127.0.0.1",))
        path = other.pem_file(tmp_path / "other.pem")
        assert await alter(broker, {LOCATION: str(path)}) == ""
        assert await shows(broker) == other.certificate


@on_uvloop
async def test_changed_files_are_noticed(tmp_path: Path) -> None:
    async with live(tmp_path, settings(tmp_path)) as broker:
        tls = broker.security.tls
        assert tls is not None
        renewed = AUTHORITY.issue(hosts=(*LOOPBACK, "another.host"))
        renewed.pem_file(tmp_path / "server.pem")
        tls.look_at_files()
        assert await shows(broker) == renewed.certificate
        made = tls.listeners["SSL"].made
        tls.look_at_files()
        assert tls.listeners["SSL"].made is made


@on_uvloop
async def test_settings_read_again_take_up_changed_files(tmp_path: Path) -> None:
    async with live(tmp_path, settings(tmp_path)) as broker:
        renewed = AUTHORITY.issue()
        renewed.pem_file(tmp_path / "server.pem")
        await broker.reload(Layer(Source.STATIC_BROKER, settings_of(broker)))
        assert await shows(broker) == renewed.certificate


@on_uvloop
async def test_whom_to_trust_changes_for_new_connections(tmp_path: Path) -> None:
    others = Authority("Another")
    mallory = others.issue("mallory")
    async with live(tmp_path, settings(tmp_path, ssl_client_auth="required")) as broker:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            async with client(broker, tls=trusting(tmp_path, mallory)) as one:
                await one.ask(ApiVersionsRequest(), version=0)
        both = tmp_path / "both.pem"
        both.write_text(AUTHORITY.pem() + others.pem())
        assert await alter(broker, {"listener.name.ssl.ssl.truststore.location": str(both)}) == ""
        async with client(broker, tls=trusting(tmp_path, mallory)) as one:
            await one.ask(ApiVersionsRequest(), version=0)


@on_uvloop
async def test_changed_demands_on_clients_hold_for_new_connections(tmp_path: Path) -> None:
    alice = AUTHORITY.issue("alice")
    async with live(tmp_path, settings(tmp_path)) as broker:
        for name, value in (
            ("ssl.client.auth", "required"),
            ("ssl.enabled.protocols", "TLSv1.2"),
        ):
            assert await alter(broker, {f"listener.name.ssl.{name}": value}) == ""
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            async with client(broker, tls=trusting(tmp_path)) as one:
                await one.ask(ApiVersionsRequest(), version=0)
        async with client(broker, tls=trusting(tmp_path, alice)) as one:
            await one.ask(ApiVersionsRequest(), version=0)
            assert Principal("User", "CN=alice") in principals(broker)


@on_uvloop
async def test_clients_cannot_change_whom_a_certificate_stands_for(tmp_path: Path) -> None:
    alice = AUTHORITY.issue("alice")
    async with live(tmp_path, settings(tmp_path, ssl_client_auth="required")) as broker:
        for name, value in (
            ("ssl.principal.mapping.rules", "RULE:^CN=(.*)$/admin/"),
            ("ssl.allow.dn.changes", "true"),
        ):
            refused = await alter(broker, {f"listener.name.ssl.{name}": value})
            assert refused.startswith("Cannot update these configs dynamically"), name
        async with client(broker, tls=trusting(tmp_path, alice)) as one:
            await one.ask(ApiVersionsRequest(), version=0)
            assert Principal("User", "CN=alice") in principals(broker)


@pytest.mark.parametrize("prefix", ["ssl.keystore", "ssl.truststore"])
@on_uvloop
async def test_a_path_to_no_regular_file_is_refused_at_once(tmp_path: Path, prefix: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    async with live(tmp_path, settings(tmp_path, ssl_client_auth="required")) as broker:
        for path, reason in (
            (str(tmp_path / "pipe"), "it is not a regular file"),
            ("/dev/zero", "it is not a regular file"),
            ("a\0b", "is not a path"),
        ):
            refused = await alter(broker, {f"listener.name.ssl.{prefix}.location": path})
            assert reason in refused


@on_uvloop
async def test_a_password_of_a_key_that_is_not_encrypted_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path, settings(tmp_path)) as broker:
        refused = await alter(broker, {"listener.name.ssl.ssl.key.password": "a secret"})
        assert "the private key is not encrypted, remove ssl.key.password" in refused


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
@on_uvloop
async def test_stores_of_pkcs12_are_read_by_either_name(tmp_path: Path, kind: str) -> None:
    middle = Authority("Middle", above=AUTHORITY)
    server: Identity = middle.issue()
    shuffled = dataclasses.replace(server, chain=(AUTHORITY.certificate, *server.chain))
    given = settings(tmp_path, ssl_client_auth="required") | {
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(shuffled.pkcs12_file(tmp_path / "s.p12", "secret 1")),
        "ssl.keystore.password": "secret 1",
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(AUTHORITY.pkcs12_file(tmp_path / "t.p12", "secret 2")),
        "ssl.truststore.password": "secret 2",
    }
    async with live(tmp_path, given) as broker:
        alice = AUTHORITY.issue("alice")
        async with client(broker, tls=trusting(tmp_path, alice)) as one:
            await one.ask(ApiVersionsRequest(), version=0)


@on_uvloop
async def test_an_encrypted_key_is_read_with_its_password(tmp_path: Path) -> None:
    locked = SERVER.pem_file(tmp_path / "locked.pem", "a secret")
    given = settings(tmp_path, ssl_key_password="a secret")
    async with live(tmp_path, given | {"ssl.keystore.location": str(locked)}) as broker:
        assert await shows(broker) == SERVER.certificate


def test_nothing_of_a_key_is_left_open(tmp_path: Path) -> None:
    from odradek.broker.security.tls.contexts import make_context
    from odradek.config.effective import resolve_listener
    from odradek.config.tls import TlsConfig

    layer = Layer(Source.STATIC_BROKER, settings(tmp_path))
    before = len(list(Path("/proc/self/fd").iterdir()))
    made = make_context(resolve_listener(TlsConfig, [layer], "SSL"))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert SERVER.key_pem().splitlines()[1] not in repr(made.key_store)


@pytest.mark.parametrize(("days", "words"), [(20, ""), (5, "ends soon"), (-1, "has ended")])
@on_uvloop
async def test_the_end_of_a_certificate_is_logged_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: int, words: str
) -> None:
    server = AUTHORITY.issue(days=(-9, days))
    async with live(tmp_path, settings(tmp_path, server)) as broker:
        tls = broker.security.tls
        assert tls is not None
        tls.look_at_files()
        found = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        assert len(found) == bool(words)
        assert all(f"certificate {words} listener=SSL end=" in one for one in found)
        assert bool(broker.problems()) == (words == "has ended")
        end = server.certificate.not_valid_after_utc.timestamp()
        assert (await take_snapshot(broker)).certificates == {"SSL": end}
