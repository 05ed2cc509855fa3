"""Commands at a broker whose HTTP listener speaks TLS, and takes a token for everything."""

from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from bench.processes import OdradekProcess
from tests.support.forking import ForkedOdradek, fork_server
from tests.support.waiting import wait_for_http

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OdradekProcess, Path]]:
    """Run such a broker; return it, and the certificate of its authority."""
    folder = tmp_path_factory.mktemp("guarded")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    made = authority.issue_cert("127.0.0.1")
    made.private_key_and_cert_chain_pem.write_to_path(folder / "http.pem")
    (folder / "http.pem").chmod(0o600)
    settings = {
        "odradek.http.tls.certificate": str(folder / "http.pem"),
        "odradek.http.read.token": "look-only-17",
    }
    running = ForkedOdradek(folder / "broker", settings=settings)
    running.start()
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    wait_for_http(running, context=context)
    yield running, folder / "ca.pem"
    running.stop()


def address(broker: OdradekProcess) -> str:
    return f"https://127.0.0.1:{broker.http_port}"


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name[:8] != "ODRADEK_"}
    return fork_server().run(arguments, env={**kept, **environment})


def test_the_token_that_is_kept_here_is_found(trusted: tuple[OdradekProcess, Path]) -> None:
    broker, authority = trusted
    run = command("cleaner", "plan", "--url", address(broker), SSL_CERT_FILE=str(authority))
    assert run.returncode == 0, run.stderr


def test_a_token_that_is_given_is_shown(trusted: tuple[OdradekProcess, Path]) -> None:
    broker, authority = trusted
    known = {"SSL_CERT_FILE": str(authority)}
    arguments = ("cleaner", "history", "prices", "0", "--url", address(broker))
    run = command(*arguments, ODRADEK_TOKEN="look-only-17", **known)
    assert "there is no topic prices" in run.stderr
    run = command(*arguments, ODRADEK_TOKEN="guess-99", **known)
    assert run.returncode == 1 and "this is not a token" in run.stderr
    assert "guess-99" not in run.stderr and len(run.stderr.splitlines()) == 1


def test_a_certificate_of_strangers_is_reported(trusted: tuple[OdradekProcess, Path]) -> None:
    broker, _ = trusted
    run = command("cleaner", "plan", "--url", address(broker))
    assert run.returncode == 1 and "SSL_CERT_FILE" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_the_doctor_finds_its_broker(trusted: tuple[OdradekProcess, Path]) -> None:
    broker, authority = trusted
    pairs = {
        "listeners": f"PLAINTEXT://{broker.bootstrap}",
        "metrics.listener": f"127.0.0.1:{broker.http_port}",
        "log.dirs": str(broker.data),
        **broker.settings,
    }
    settings = [f"--set={name}={value}" for name, value in pairs.items()]
    run = command("doctor", *settings, SSL_CERT_FILE=str(authority))
    assert run.returncode == 0, run.stdout
    assert f"the broker at {address(broker)} is healthy" in run.stdout
    stranger = command("doctor", *settings)
    assert stranger.returncode == 1 and "SSL_CERT_FILE" in stranger.stdout
