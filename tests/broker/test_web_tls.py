"""The HTTP listener over TLS."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from pathlib import Path

import aiohttp
import pytest
import trustme

from odradek.config.errors import ConfigError
from tests.broker.live import PATIENCE_S, on_uvloop, until
from tests.broker.test_tls_hostile import COSTLY
from tests.broker.tls_records import hello, records
from tests.broker.web import bearer, connection, is_reset, serving

READ = {"odradek.http.read.token": "look-only-17"}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def issue(authority: trustme.CA, folder: Path, name: str = "localhost") -> dict[str, str]:
    """Write a certificate for this machine and its key; return the settings that name them."""
    made = authority.issue_cert(name, "127.0.0.1")
    folder.mkdir(exist_ok=True)
    certificate, key = folder / "http.pem", folder / "http.key"
    made.private_key_pem.write_to_path(key)
    certificate.write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
    return {
        "odradek.http.tls.certificate": str(certificate),
        "odradek.http.tls.key": str(key),
    }


def tear(path: str) -> None:
    Path(path).write_text("torn")


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@on_uvloop
async def test_everything_is_served_over_tls(tmp_path: Path, authority: trustme.CA) -> None:
    settings = {**issue(authority, tmp_path / "tls"), **READ}
    async with serving(tmp_path, settings) as broker, aiohttp.ClientSession() as session:
        where = broker.http.url
        assert where.startswith("https://127.0.0.1:")
        context = trusting(authority)
        for path, status in (("health", 200), ("", 200), ("api/topics", 401)):
            async with session.get(where + path, ssl=context) as response:
                assert response.status == status
        headers = bearer("look-only-17")
        async with session.get(where + "api/events", ssl=context, headers=headers) as response:
            assert await response.content.readline() == b"event: tick\n"
        stranger = trusting(trustme.CA())
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(where, ssl=stranger)
        # Nothing is told in the clear.
        async with connection(broker) as (reader, writer):
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP" not in await reader.read()


@on_uvloop
async def test_old_versions_of_tls_are_refused(tmp_path: Path, authority: trustme.CA) -> None:
    async with serving(tmp_path, issue(authority, tmp_path / "tls")) as broker:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trusting(authority)
            context.minimum_version = context.maximum_version = version
            async with connection(broker, context) as (reader, writer):
                writer.write(b"GET /health HTTP/1.0\r\n\r\n")
                assert b"200 OK" in await reader.readline()
        old = trusting(authority)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with connection(broker, old):
                pass


@on_uvloop
async def test_a_new_certificate_needs_no_restart(
    tmp_path: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = issue(authority, tmp_path / "tls", "localhost")
    async with serving(tmp_path, settings) as broker:
        assert broker.http._certificate is not None
        certificate = broker.http._certificate
        quick = asyncio.ensure_future(certificate.follow(every_s=0.01))

        async def serial() -> str:
            async with connection(broker, trusting(authority)) as (_, writer):
                return str(writer.get_extra_info("peercert")["serialNumber"])

        first = await serial()
        tear(settings["odradek.http.tls.key"])
        await until(lambda: "kept the former certificate" in caplog.text)
        assert await serial() == first
        issue(authority, tmp_path / "tls", "localhost")
        async with asyncio.timeout(PATIENCE_S):
            while await serial() == first:
                pass
        quick.cancel()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"odradek.http.tls.certificate": "/nowhere.pem"}, "no such file"),
        ({"odradek.http.tls.key": ""}, "no such file"),
        ({"odradek.http.tls.key": "{other}"}, "key values mismatch"),
        ({"odradek.http.tls.key": "{locked}"}, "odradek.http.tls.key.password"),
    ],
)  # fmt: skip
@on_uvloop
async def test_files_that_cannot_be_used_are_refused_at_the_start(
    tmp_path: Path, authority: trustme.CA, change: dict[str, str], told: str
) -> None:
    settings = issue(authority, tmp_path / "tls")
    other = issue(authority, tmp_path / "other")["odradek.http.tls.key"]
    locked = tmp_path / "locked.key"
    _lock(Path(settings["odradek.http.tls.key"]), locked, b"hush-hush-5")
    names = {"other": other, "locked": str(locked)}
    changed = {name: value.format_map(names) or "/nowhere.key" for name, value in change.items()}
    with pytest.raises(ConfigError) as refused:
        async with serving(tmp_path, {**settings, **changed}):
            pass
    assert told in str(refused.value).lower() and len(refused.value.problems) == 1


@on_uvloop
async def test_a_key_may_have_a_password(tmp_path: Path, authority: trustme.CA) -> None:
    settings = issue(authority, tmp_path / "tls")
    locked = tmp_path / "locked.key"
    _lock(Path(settings["odradek.http.tls.key"]), locked, b"hush-hush-5")
    settings |= {
        "odradek.http.tls.key": str(locked), "odradek.http.tls.key.password": "hush-hush-5",
    }  # fmt: skip
    async with serving(tmp_path, settings) as broker:
        async with connection(broker, trusting(authority)) as (reader, writer):
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            assert b"200 OK" in await reader.readline()
        with pytest.raises(ConfigError) as refused:
            wrong = {**settings, "odradek.http.tls.key.password": "guess-6"}
            async with serving(tmp_path / "b", wrong):
                pass
        assert "hush" not in str(refused.value) and "guess" not in str(refused.value)


def _lock(key: Path, target: Path, password: bytes) -> None:
    from cryptography.hazmat.primitives import serialization as form

    found = form.load_pem_private_key(key.read_bytes(), None)
    target.write_bytes(
        found.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(password)
        )
    )


@on_uvloop
async def test_a_key_alone_is_a_contradiction(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"odradek\.http\.tls\.certificate"):
        async with serving(tmp_path, {"odradek.http.tls.key": "x.pem"}):
            pass


@on_uvloop
async def test_a_half_open_handshake_holds_nothing_up(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odradek.broker.web import accepting

    # The other client has to be done by then, on a busy machine too.
    monkeypatch.setattr(accepting, "HANDSHAKE_S", 3.0)
    async with (
        serving(tmp_path, issue(authority, tmp_path / "tls")) as broker,
        connection(broker) as (reader, writer),
        connection(broker, trusting(authority)) as (other, asked),
    ):
        writer.write(b"\x16\x03\x01\x02\x00")
        asked.write(b"GET /health HTTP/1.0\r\n\r\n")
        assert b"200 OK" in await other.readline()
        assert await is_reset(reader)




@on_uvloop
async def test_a_client_that_is_silent_before_the_handshake_takes_a_place(
    tmp_path: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**issue(authority, tmp_path / "tls"), "odradek.http.connections.max": "6"}
    async with serving(tmp_path, settings) as broker:
        # Half of them are of this address.
        async with (
            connection(broker),
            connection(broker),
            connection(broker),
            connection(broker) as (reader, _),
        ):
            assert await is_reset(reader)
            assert "odradek.http.connections.max allows no more count=1" in caplog.text
        assert broker.http.server is not None and broker.http.server._guard.limits is not None
        open_ones = broker.http.server._guard.limits._open
        await until(lambda: not open_ones)
        for _ in range(4):  # nor does a handshake that fails keep its place
            async with connection(broker) as (reader, writer):
                writer.write(b"no TLS")
                assert await is_reset(reader)
            await until(lambda: not open_ones)
        async with connection(broker, trusting(authority)) as (reader, writer):
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            assert b"200 OK" in await reader.readline()


@pytest.mark.parametrize("name", COSTLY)
@on_uvloop
async def test_a_costly_hello_is_refused(
    tmp_path: Path, authority: trustme.CA, name: str
) -> None:
    async with serving(tmp_path, issue(authority, tmp_path / "tls")) as broker:
        begun_s = time.process_time()
        for _ in range(10):
            async with connection(broker) as (reader, writer):
                writer.write(records(COSTLY[name], 1_000))
                assert await is_reset(reader)
        # OpenSSL takes 50 to 150 ms for each.
        assert time.process_time() - begun_s < 0.4
        async with connection(broker, trusting(authority)) as (reader, writer):
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            assert b"200 OK" in await reader.readline()


@on_uvloop
async def test_a_hello_may_come_in_pieces(tmp_path: Path, authority: trustme.CA) -> None:
    sent = records(hello(), 10)
    async with (
        serving(tmp_path, issue(authority, tmp_path / "tls")) as broker,
        connection(broker) as (reader, writer),
    ):
        for at in range(0, len(sent), 50):
            writer.write(sent[at : at + 50])
            await writer.drain()
            await asyncio.sleep(0)
        assert await reader.readexactly(1) == b"\x16"
