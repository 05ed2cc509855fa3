"""What is told of listeners beyond loopback, and of files with secrets that others may read."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.hosts.listener import Listener
from odradek.broker.network.exposure import warn_of_http, warn_of_listener
from odradek.config.layers import static_layer
from odradek.config.resolution import Layer, Source
from odradek.config.secret_files import open_secret_files
from tests.broker.live import live, on_uvloop
from tests.broker.web import serving

ANYWHERE = [("0.0.0.0", 9092)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]


@on_uvloop
async def test_by_default_nothing_is_open_and_nothing_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path):
        assert not warnings(caplog)


@on_uvloop
async def test_each_open_listener_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "listeners": "PLAINTEXT://0.0.0.0:0,LOCAL://127.0.0.1:0,WIDE://:0",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOCAL:PLAINTEXT,WIDE:PLAINTEXT",
        "metrics.listener": "0.0.0.0:0",
    }
    async with live(tmp_path, settings) as broker:
        told = warnings(caplog)
        ports = [one.port for one in broker.server.listeners]
        http_port = broker.http.sockets[0].getsockname()[1]
    assert len(told) == 3
    assert f"listener=PLAINTEXT address=0.0.0.0:{ports[0]}" in told[0]
    assert "listener.security.protocol.map" in told[0]
    assert "listener=WIDE" in told[1] and f":{ports[2]}" in told[1]
    assert f"listener=HTTP address=0.0.0.0:{http_port}" in told[2]
    assert "odradek.http.read.token" in told[2]


@pytest.mark.parametrize(
    ("protocol", "addresses", "client_auth", "is_warned"),
    [
        ("PLAINTEXT", ANYWHERE, "none", True),
        ("PLAINTEXT", [("127.0.0.1", 1), ("::1", 1)], "none", False),
        ("PLAINTEXT", [("127.0.0.1", 1), ("10.0.0.1", 1)], "none", True),
        ("PLAINTEXT", [("fe80::1%eth0", 1)], "none", True),
        ("SSL", ANYWHERE, "none", True),
        ("SSL", ANYWHERE, "requested", True),
        ("SSL", ANYWHERE, "required", False),
        ("SASL_PLAINTEXT", ANYWHERE, "none", False),
        ("SASL_SSL", ANYWHERE, "none", False),
    ],
)
def test_a_listener_with_passwords_or_certificates_causes_no_warning(
    protocol: str, addresses: list[tuple[str, int]], client_auth: str, is_warned: bool
) -> None:
    listener = Listener("CLIENTS", "", 9092, "localhost", 9092, protocol)
    assert bool(warn_of_listener(listener, addresses, client_auth)) is is_warned


@pytest.mark.parametrize(
    ("address", "is_guarded", "is_secured", "told"),
    [
        ("127.0.0.1", False, False, ""),
        ("0.0.0.0", True, True, ""),
        ("0.0.0.0", True, False, "odradek.http.tls.certificate"),
        ("::", False, True, "odradek.http.read.token"),
    ],
)
def test_the_warning_of_the_http_listener_names_the_missing_protection(
    address: str, is_guarded: bool, is_secured: bool, told: str
) -> None:
    warning = warn_of_http([(address, 9308)], is_guarded=is_guarded, is_secured=is_secured)
    assert warning.endswith(told) and bool(warning) is bool(told)


def test_files_with_secrets_that_others_may_read_are_reported(tmp_path: Path) -> None:
    package = "org.apache.kafka.common.config.provider."
    held = tmp_path / "broker.properties"
    held.write_text("token=open-sesame-41\n")
    (tmp_path / "password").write_text("hush-hush-5")
    key = tmp_path / "http.key"
    key.touch()
    config = tmp_path / "server.properties"
    config.write_text(
        f"config.providers=file,dir\nconfig.providers.file.class={package}FileConfigProvider\n"
        f"config.providers.dir.class={package}DirectoryConfigProvider\n"
        f"odradek.http.read.token=${{file:{held}:token}}\n"
        f"odradek.http.tls.key.password=${{dir:{tmp_path}:password}}\n"
        f"odradek.http.tls.certificate={key}\nodradek.admin.token=look-only-17\n"
    )
    everything = [held, tmp_path / "password", key, config]
    for path in everything:
        path.chmod(0o644)
    told = list(open_secret_files(static_layer(config)))
    assert sorted(one.rpartition(" ")[2] for one in told) == sorted(map(str, everything))
    secrets = ("look-only-17", "open-sesame-41", "hush-hush-5")
    assert not [one for one in told if any(secret in one for secret in secrets)]
    for path in everything:
        path.chmod(0o640)
    assert not list(open_secret_files(static_layer(config)))


@pytest.mark.parametrize("key", ["", "http.key"])
def test_a_certificate_that_others_may_read_is_reported_if_it_holds_the_key(
    tmp_path: Path, key: str
) -> None:
    certificate = tmp_path / "http.pem"
    certificate.touch(0o644)
    values = {"odradek.http.tls.certificate": str(certificate)}
    if key:
        (tmp_path / key).touch(0o600)
        values["odradek.http.tls.key"] = str(tmp_path / key)
    told = list(open_secret_files(Layer(Source.STATIC_BROKER, values)))
    assert len(told) == (0 if key else 1)
