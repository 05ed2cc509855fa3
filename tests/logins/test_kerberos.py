"""Logins by Kerberos, with a key distribution center, and the clients that people use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.processes import ROOT, OdradekProcess, free_port, kafka_tool
from tests.support.forking import ForkedOdradek
from tests.support.kdc import REALM, SERVICE, Kdc, lacks_kdc, running_kdc

_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_RULES = "RULE:[2:$1](alice)s/^/instance-/,RULE:[1:$1@$0](b.*@ODRADEK.TEST)s/@.*//U,DEFAULT"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacks_kdc()), reason=lacks_kdc() or "there is a center"),
    pytest.mark.skipif(
        find_spec("gssapi") is None, reason="the library gssapi is not installed: make kerberos"
    ),
]


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kerberos") / "kdc") as running:
        yield running


@pytest.fixture(scope="module")
def broker(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekProcess]:
    """A broker of which only alice may use anything."""
    port, plain = free_port(), free_port()
    keytab = kdc.keytab(SERVICE)
    settings = {
        "listeners": f"OUT://localhost:{port},PLAINTEXT://127.0.0.1:{plain}",
        "listener.security.protocol.map": "OUT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listener.name.out.gssapi.sasl.jaas.config": (
            f'{_MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
            f'principal="{SERVICE}@{REALM}";'
        ),
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": _RULES,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice;User:ANONYMOUS",
    }
    running = ForkedOdradek(
        tmp_path_factory.mktemp("broker"), settings, kdc.environment, "DEBUG", port=plain
    )
    running.start()
    running.kerberos_port = port  # type: ignore[attr-defined]
    yield running
    running.stop()
    assert "Traceback" not in running.log_text()


def _address(broker: OdradekProcess) -> str:
    return f"localhost:{broker.kerberos_port}"  # type: ignore[attr-defined]


_TOPICS = """
import sys
from kafka.admin import KafkaAdminClient
admin = KafkaAdminClient(
    bootstrap_servers=sys.argv[1], security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI",
    sasl_kerberos_name="kafka@localhost", bootstrap_timeout_ms=8_000,
)
print(admin.describe_topics([sys.argv[2]]))
"""


def _kafka_python(broker: OdradekProcess, environment: Mapping[str, str]) -> str:
    """Describe a topic that does not exist; return the output."""
    done = subprocess.run(
        [sys.executable, "-c", _TOPICS, _address(broker), "absent"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        cwd=ROOT,
    )
    return done.stdout + done.stderr


def test_kafka_python_logs_in_as_the_first_component(kdc: Kdc, broker: OdradekProcess) -> None:
    shown = _kafka_python(broker, kdc.ticket("alice"))
    assert "'error_code': 3" in shown, shown  # she may know that there is no such topic


@pytest.mark.parametrize(
    ("principal", "name"), [("alice/desk", "instance-alice"), ("bob", "BOB"), ("carol", "carol")]
)
def test_rules_name_the_principal(
    kdc: Kdc, broker: OdradekProcess, principal: str, name: str
) -> None:
    before = len(broker.log_text())
    assert "'error_code': 29" in _kafka_python(broker, kdc.ticket(principal))  # not authorized
    assert f"principal=User:{name}\n" in broker.log_text()[before:]


def test_librdkafka_produces_and_consumes(kdc: Kdc, broker: OdradekProcess) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("there is no kcat here")
    options = [
        "kcat", "-b", _address(broker), "-t", "by-kcat",
        "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=GSSAPI",
        "-X", "sasl.kerberos.service.name=kafka", "-X", "sasl.kerberos.principal=alice",
        "-X", f"sasl.kerberos.keytab={kdc.keytab('alice')}",
    ]  # fmt: skip
    run = {
        "env": {**os.environ, **kdc.ticket("alice")}, "text": True, "capture_output": True,
        "timeout": 100,
    }  # fmt: skip
    sent = subprocess.run([*options, "-P"], input="one\ntwo\n", **run)  # type: ignore[call-overload]
    if "No provider for SASL mechanism GSSAPI" in sent.stderr:
        pytest.skip("kcat has no GSSAPI: libsasl2-modules-gssapi-mit is not installed")
    assert sent.returncode == 0, sent.stderr
    read = subprocess.run([*options, "-C", "-e"], **run)  # type: ignore[call-overload]
    assert read.stdout == "one\ntwo\n", read.stderr


@pytest.mark.kafka
def test_kafkas_tools_log_in(kdc: Kdc, broker: OdradekProcess, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=GSSAPI\n"
        "sasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={_MODULE} required useKeyTab=true storeKey=true "
        f'keyTab="{kdc.keytab("alice")}" principal="alice@{REALM}";\n'
    )
    command = [
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", _address(broker),
        "--command-config", str(config), "--create", "--topic", "by-java",
    ]  # fmt: skip
    done = kafka_tool(command, flags=[f"-Djava.security.krb5.conf={kdc.config}"])
    assert "Created topic by-java" in done.stdout


def test_a_new_key_is_taken_once_the_keytab_has_it(
    kdc: Kdc, broker: OdradekProcess, tmp_path: Path
) -> None:
    keytab = kdc.keytab(SERVICE)
    kdc.add_key(SERVICE, tmp_path / "elsewhere.keytab")
    before = len(broker.log_text())
    assert "error_code" not in _kafka_python(broker, kdc.ticket("dave"))
    (line, *_) = (one for one in broker.log_text()[before:].splitlines() if "GSSAPI" in one)
    assert "refused authentication" in line and "annot find key" in line
    kdc.add_key(SERVICE, keytab)
    assert "error_code" in _kafka_python(broker, kdc.ticket("erin"))
