"""No secret is shown by anything that a broker writes, answers, or ends with.

A marker stands in every place that a secret may be in, and is looked for in all there is to see.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.processes import ROOT, START_TIMEOUT_S, OdradekProcess, free_port
from odradek.config.effective import BROKER_OPTION, resolve_broker
from odradek.config.errors import ConfigError
from odradek.config.resolution import Layer, Source
from odradek.config.values import Kind
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_for_http, wait_until

pytestmark = pytest.mark.slow

MARKER = "MaRkEr7f3a"
# Where nobody takes metrics: that they cannot be pushed is told of.
NOBODY = "http://127.0.0.1:9"
SENSITIVE = [name for name, option in BROKER_OPTION.items() if option.sensitive]
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PROVIDERS = "org.apache.kafka.common.config.provider."
_PATHS = [
    "/", "/page/app.js", "/health", "/metrics", "/api/broker", "/api/samples", "/api/topics",
    "/api/topic?topic=prices", "/api/groups", "/api/records?topic=prices", "/api/cleaner",
    "/api/cleaner/plan", "/api/cleaner/why?topic=prices&partition=0", "/api/cleaner/runs",
    "/api/nothing", "/api/config", "/api/topics?odradek.admin.token=x",
]  # fmt: skip

# Where nobody listens; headers without it are refused.
_COLLECTOR = {"odradek.otlp.endpoint": "http://127.0.0.1:9"}


def shows(text: str) -> list[str]:
    """Return where a marker shows in a text, as it is, or in one of the usual disguises."""
    found = re.findall(rf".{{0,80}}{MARKER}.{{0,40}}", text)
    for word in re.findall(r"[A-Za-z0-9+/_-]{16,}=*", text):
        padded = word.rstrip("=") + "=" * (-len(word.rstrip("=")) % 4)
        try:
            plain = base64.urlsafe_b64decode(padded.replace("+", "-").replace("/", "_"))
        except ValueError:
            continue
        if MARKER.encode() in plain:
            found.append(word)
    if MARKER.encode().hex() in text.lower():
        found.append("as hexadecimal digits")
    return found


def value_of(name: str) -> str:
    if name == "sasl.jaas.config":
        return f'{_PLAIN} required username="a" password="{MARKER}-a" user_alice="{MARKER}-b";'
    if name == "odradek.scram.users":
        return f'SCRAM-SHA-256=[name=carol,password="{MARKER}-carol"]'
    if name == "odradek.catalog.url":
        return f"postgresql://odradek:{MARKER}@127.0.0.1:9/odradek"
    if name == "odradek.otlp.headers":
        return f"authorization={MARKER}-{name}"
    return f"{MARKER}-{name}"


def write_settings(folder: Path, sasl_port: int, admin_token: str) -> Path:
    """Write a settings file with a marker wherever a secret may be."""
    (folder / "held.properties").write_text(f"read={MARKER}-read\nrack={MARKER}-unused\n")
    settings = {name: value_of(name) for name in SENSITIVE} | {
        "odradek.admin.token": admin_token,
        "odradek.catalog.url": "",  # no broker starts without its catalog
        **_COLLECTOR,
        "odradek.http.read.token": f"${{file:{folder}/held.properties:read}}",
        # Nothing to unlock: without a certificate this one only lies there.
        "delegation.token.secret.key": "${env:SECRET_KEY}",
        "config.providers": "file,env",
        "config.providers.file.class": _PROVIDERS + "FileConfigProvider",
        "config.providers.env.class": _PROVIDERS + "EnvVarConfigProvider",
        "config.providers.vault.param.password": f"{MARKER}-vault",
        "listener.name.inside.plain.sasl.jaas.config": value_of("sasl.jaas.config"),
        "listener.name.inside.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.plaintext.ssl.key.password": f"{MARKER}-own",
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": value_of("sasl.jaas.config"),
        "odradek.otlp.endpoint": NOBODY,
        "no.such.option": f"{MARKER}-unknown",
        "odradek.admin.tokenn": f"{MARKER}-misspelt",
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    file.chmod(0o644)  # told of, by its name
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secrets")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[OdradekProcess]:
    sasl_port = free_port()
    file = write_settings(folder, sasl_port, f"{MARKER}-admin")
    running = ForkedOdradek(
        folder / "broker",
        settings={"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT"},
        environment={"SECRET_KEY": f"{MARKER}-env", "KAFKA_SECRET_THING": f"{MARKER}-variable"},
        log_level="DEBUG",
        options=["--config", str(file)],
    )
    running.settings = {
        **running.settings,
        "listeners": f"PLAINTEXT://127.0.0.1:{running.port},INSIDE://127.0.0.1:{sasl_port}",
    }
    running.sasl_port = sasl_port  # type: ignore[attr-defined]
    running.start()
    wait_for_http(running)
    yield running
    running.stop()


def fetch(broker: OdradekProcess, path: str, token: str | None) -> str:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    asked = urllib.request.Request(broker.http + path, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return f"{answer.headers}{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.headers}{error.read().decode()}"


def test_there_are_secrets_to_look_for() -> None:
    assert len(SENSITIVE) >= 10
    assert shows(f"x {MARKER} y") and shows(base64.b64encode(f"aa{MARKER}b".encode()).decode())


def test_nothing_shows_over_http(broker: OdradekProcess) -> None:
    for token in (f"{MARKER}-admin", f"{MARKER}-read", f"{MARKER}-wrong", None):
        for path in _PATHS:
            assert not shows(fetch(broker, path, token)), (path, token)


def test_nothing_shows_to_who_describes_the_settings(broker: OdradekProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    resource = ConfigResource(ResourceType.BROKER, "1")
    changes = {
        "sasl.jaas.config": value_of("sasl.jaas.config"),
        "listener.name.inside.plain.sasl.jaas.config": value_of("sasl.jaas.config"),
        "ssl.key.password": f"{MARKER}-dynamic",
        "no.such.dynamic.option": f"{MARKER}-unknown-dynamic",
        "listener.name.nobody.some.password": f"{MARKER}-nobody",
        # Clients may not refer to what is kept elsewhere.
        "ssl.truststore.password": "${env:SECRET_KEY}",
        "log.retention.ms": "${env:SECRET_KEY}",
    }
    told = []
    for name, value in changes.items():
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        wish = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        try:
            admin.incremental_alter_configs([wish])[wish].result(20)
        except KafkaException as refused:
            told.append(str(refused))
    entries = admin.describe_configs([resource])[resource].result(20)
    told += [
        repr((key, one.value, one.is_sensitive, list(map(vars_of, one.synonyms.values()))))
        for key, one in entries.items()
    ]
    assert not shows("\n".join(told))
    assert sum("References to values that are kept elsewhere" in one for one in told) == 1
    shown = [name for name, one in entries.items() if one.is_sensitive and one.value is not None]
    assert "ssl.key.password" in entries and not shown


def vars_of(entry: Any) -> tuple[object, ...]:
    return entry.name, entry.value, entry.source


def test_nothing_shows_of_who_logs_in(broker: OdradekProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    scram = UserScramCredentialUpsertion(
        "bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), f"{MARKER}-bob".encode()
    )
    for one in admin.alter_user_scram_credentials([scram]).values():
        one.result(20)
    told = repr(admin.describe_user_scram_credentials(["bob"])["bob"].result(20))
    port = broker.sasl_port  # type: ignore[attr-defined]
    logins = [
        ("PLAIN", "alice", f"{MARKER}-b"), ("PLAIN", "alice", f"{MARKER}-wrong"),
        ("SCRAM-SHA-256", "bob", f"{MARKER}-bob"), ("SCRAM-SHA-256", "bob", f"{MARKER}-wrong"),
        ("PLAIN", "nobody", f"{MARKER}-wrong"),
    ]  # fmt: skip
    for mechanism, name, password in logins:
        errors: list[object] = []
        client = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": password,
                "log_level": 0, "error_cb": errors.append,
            }
        )  # fmt: skip
        if password.endswith("wrong"):
            with pytest.raises(KafkaException):
                client.list_topics(timeout=3)
            told += repr(errors)
        else:
            client.list_topics(timeout=20)
    assert not shows(told)


def test_nothing_shows_to_the_doctor_nor_of_settings_that_are_wrong(
    broker: OdradekProcess, folder: Path
) -> None:
    environment = {**os.environ, "SECRET_KEY": f"{MARKER}-env", "PYTHONPATH": str(ROOT)}
    commands = [
        ["doctor", "--config", str(folder / "server.properties"), "--url", broker.http],
        ["doctor", "--config", str(folder / "server.properties"), "--json"],
        ["doctor", "--set", f"odradek.admin.token:{MARKER}"],
        ["doctor", "--set", f"={MARKER}"],
        ["doctor", "--set", "num.partitions=${env:SECRET_KEY}"],
        ["serve", "--config", str(folder / "server.properties"), "--set", "num.partitions=x"],
        ["configs", "describe", "broker", "1", "--all", "--bootstrap-server", broker.bootstrap],
        ["get", "prices", "k", "--url", broker.http],
    ]
    for arguments in commands:
        run = subprocess.run(
            [sys.executable, "-m", "odradek.cli.main", *arguments],
            capture_output=True, text=True, timeout=60, check=False, env=environment, cwd=ROOT,
        )  # fmt: skip
        assert not shows(run.stdout + run.stderr), arguments
        assert "Traceback" not in run.stderr


def test_nothing_shows_in_the_log_of_all_that(broker: OdradekProcess, folder: Path) -> None:
    assert broker.process is not None
    # What is read again says what has changed.
    file = folder / "server.properties"
    file.write_text(
        file.read_text()
        .replace(f"ssl.key.password={MARKER}-", f"ssl.key.password={MARKER}-again-")
        .replace(f"{MARKER}-unknown", f"{MARKER}-other")
    )
    broker.process.send_signal(signal.SIGHUP)
    wait_until(
        lambda: "read the settings again" in broker.log_text(),
        "the settings are read again",
        START_TIMEOUT_S,
        shown=broker.log_text,
    )
    log = broker.log_text()
    assert not shows(log)
    assert "refused a wrong token over HTTP" in log and "no.such.option" in log
    assert f"every user of this machine may read {file}" in log


@pytest.mark.parametrize("name", SENSITIVE)
def test_no_error_and_no_printed_config_has_a_secret(name: str) -> None:
    option = BROKER_OPTION[name]
    settings = {name: value_of(name), "odradek.otlp.endpoint": NOBODY}
    resolved = resolve_broker([Layer(Source.STATIC_BROKER, settings)])
    entry = resolved.entries[name]
    assert entry.sensitive and entry.value is None
    assert not shows(f"{resolved!r} {entry!r}") and option.kind is Kind.PASSWORD
    problems: Mapping[str, str] = {name: f"{MARKER}\x00"}
    try:
        resolve_broker([Layer(Source.STATIC_BROKER, problems)])
    except ConfigError as error:
        assert not shows(json.dumps(error.problems))
