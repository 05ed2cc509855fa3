"""Clients log in here as they do at Kafka, and fail with the same errors."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiokafka.admin
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from bench.processes import kafka_libs
from odradek.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from tests.broker import sasl_brokers
from tests.broker.sasl_brokers import Listeners
from tests.broker.sasl_client import PLAIN_MODULE, SCRAM_MODULE, USERS
from tests.broker.test_sasl_against_kafka import Wire
from tests.broker.test_scram_users import upsert
from tests.support.java import program

PROGRAM = Path(__file__).with_name("SaslOracle.java")
PATIENCE_S = 60.0
CAROL = "carol"
CAROLS = "carol's, =secret"


@dataclass(frozen=True)
class Login:
    """Who logs in, and how."""

    mechanism: str
    name: str
    password: str


RIGHT = {
    "plain": Login("PLAIN", "alice", USERS["alice"]),
    "plain with marks": Login("PLAIN", "bob", USERS["bob"]),
    "scram": Login("SCRAM-SHA-256", CAROL, CAROLS),
}
WRONG = {
    "plain, wrong password": Login("PLAIN", "alice", "wrong"),
    "plain, unknown user": Login("PLAIN", "eve", "x"),
    "scram, wrong password": Login("SCRAM-SHA-256", CAROL, "wrong"),
    "scram, unknown user": Login("SCRAM-SHA-256", "eve", "x"),
    "mechanism not enabled": Login("SCRAM-SHA-512", CAROL, CAROLS),
}
LOGINS = RIGHT | WRONG
Client = Callable[[int, Login], str]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    with sasl_brokers.odradek(tmp_path_factory.mktemp("ours")) as listeners:
        _make_carol(listeners)
        yield listeners


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    with sasl_brokers.kafka(tmp_path_factory.mktemp("theirs")) as listeners:
        _make_carol(listeners)
        yield listeners


def _make_carol(listeners: Listeners) -> None:
    wanted = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsert(CAROL, CAROLS)])
    with Wire(listeners.plaintext) as wire:
        (result,) = wire.ask(wanted, 0).results
        assert result.error_code == 0


def librdkafka(port: int, login: Login) -> str:
    errors: list[KafkaError] = []
    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.name,
            "sasl.password": login.password,
            "error_cb": errors.append,
            "log_level": 0,
        }
    )
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            return "ok" if admin.list_topics(timeout=0.5).brokers else "nothing"
        except KafkaException:
            admin.poll(0)
        for error in errors:
            if error.code() == KafkaError._AUTHENTICATION:
                return error.name()
    return f"other: {errors}"


def kafka_python(port: int, login: Login) -> str:
    try:
        admin = kafka.KafkaAdminClient(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=login.mechanism,
            sasl_plain_username=login.name,
            sasl_plain_password=login.password,
            # It goes on trying after a refusal.
            bootstrap_timeout_ms=int(PATIENCE_S * 1000) if login in RIGHT.values() else 2000,
        )
    except kafka.errors.KafkaError as error:
        return type(error).__name__
    try:
        return "ok" if admin.describe_cluster() else "nothing"
    finally:
        admin.close()


def aio(port: int, login: Login) -> str:
    async def run() -> str:
        admin = aiokafka.admin.AIOKafkaAdminClient(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=login.mechanism,
            sasl_plain_username=login.name,
            sasl_plain_password=login.password,
        )
        try:
            await admin.start()
            return "ok" if await admin.describe_cluster() else "nothing"
        except aiokafka.errors.KafkaError as error:
            return type(error).__name__
        finally:
            await admin.close()

    return asyncio.run(run())


CLIENTS: dict[str, Client] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aio,
}


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("login", RIGHT)
def test_a_client_logs_in(ours: Listeners, client: str, login: str) -> None:
    assert CLIENTS[client](ours.sasl, RIGHT[login]) == "ok"


@pytest.mark.kafka
@pytest.mark.interop
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("login", WRONG)
def test_a_client_fails_as_with_kafka(
    ours: Listeners, theirs: Listeners, client: str, login: str
) -> None:
    told = [CLIENTS[client](one.sasl, WRONG[login]) for one in (ours, theirs)]
    assert told[0] == told[1]
    assert told[0] != "ok"


@pytest.mark.kafka
@pytest.mark.interop
def test_javas_client_gets_the_same_answers(ours: Listeners, theirs: Listeners) -> None:
    lines = [_line(one.sasl, login) for one in (ours, theirs) for login in LOGINS.values()]
    told = _java(lines)
    half = len(LOGINS)
    assert told[:half] == told[half:]
    answers = dict(zip(LOGINS, told, strict=False))
    assert {answers[name] for name in RIGHT} == {"ok 0 0"}
    assert all(answers[name].startswith(("SaslAuth", "UnsupportedSasl")) for name in WRONG)


@pytest.mark.kafka
@pytest.mark.interop
def test_javas_client_logs_in_again_before_its_session_ends(
    ours: Listeners, theirs: Listeners
) -> None:
    lasting_ms = 3 * sasl_brokers.SHORT_MS
    told = _java([_line(one.short, RIGHT["plain"], lasting_ms) for one in (ours, theirs)])
    for line in told:
        word, again, failed = line.split()
        assert (word, failed) == ("ok", "0")
        assert int(again) >= 2


def _line(port: int, login: Login, duration_ms: int = 0) -> str:
    module = PLAIN_MODULE if login.mechanism == "PLAIN" else SCRAM_MODULE
    texts = login.name, login.password
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": login.mechanism,
        "sasl.jaas.config": f'{module} required username="{quoted[0]}" password="{quoted[1]}";',
    }
    told = "\t".join(f"{name}={value}" for name, value in settings.items())
    return f"{duration_ms}\t{told}"


def _java(lines: list[str]) -> list[str]:
    run = subprocess.run(
        program(PROGRAM),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()
