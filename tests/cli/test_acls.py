"""odradek acls, and its answers to a person without rights, with an authorizer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.processes import KafkaProcess, OdradekProcess, free_port
from odradek.config.acl import STANDARD_AUTHORIZER
from tests.cli.commands import Commands, fresh
from tests.conftest import starting
from tests.support.forking import ForkedOdradek

pytestmark = pytest.mark.slow
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class _Broker:
    """A broker whose clients are superusers at one listener, and ann at the other."""

    def __init__(self, kind: type[OdradekProcess | KafkaProcess], directory: Path) -> None:
        self.sasl_port = free_port()
        self.process = kind(directory)
        listeners = f"PLAINTEXT://127.0.0.1:{self.process.port}"
        listeners += f",SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}"
        self.process.settings = {
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{LOGIN} user_ann="secret";',
        }
        if isinstance(self.process, KafkaProcess):
            controller = f",CONTROLLER://127.0.0.1:{self.process.controller_port}"
            self.process.settings["listeners"] += controller


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(ForkedOdradek, id="OdradekProcess"),
        pytest.param(KafkaProcess, marks=pytest.mark.kafka),
    ],
)
def broker_with_rights(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Broker]:
    running = _Broker(request.param, tmp_path_factory.mktemp("broker"))
    running.process.start()
    yield running
    running.process.stop()


@pytest.fixture
def admin(broker_with_rights: _Broker) -> Commands:
    return Commands(broker_with_rights.process.bootstrap)


@pytest.fixture
def ann(broker_with_rights: _Broker) -> Commands:
    return Commands(f"127.0.0.1:{broker_with_rights.sasl_port}")


def _login(folder: Path, password: str) -> tuple[str, str]:
    file = folder / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={LOGIN} username="ann" password="{password}";\n'
    )
    return "--client-config", str(file)


def test_entries_are_created_listed_and_deleted(admin: Commands) -> None:
    topic, who = fresh("prices"), ("--principal", f"User:{fresh('bob')}")
    made = admin.document("acls", "create", *who, "--operation", "read", "--operation", "write",
                          "--topic", topic)["acls"]  # fmt: skip
    assert [one["operation"] for one in made] == ["read", "write"]
    admin.shown("acls", "create", *who, "--operation", "all", "--group", "bill", "--deny",
                "--pattern", "prefixed", "--host", "10.0.0.1")  # fmt: skip
    admin.shown("acls", "create", *who, "--operation", "alter", "--cluster")
    listed = admin.shown("acls", "list", *who)
    assert re.search(rf"allow +write +\* +topic +{topic} +literal$", listed, re.M)
    assert re.search(r"deny +all +10.0.0.1 +group +bill +prefixed$", listed, re.M)
    assert re.search(r"allow +alter +\* +cluster +kafka-cluster +literal$", listed, re.M)
    match = admin.document("acls", "list", *who, "--group", "billing", "--pattern", "match")
    assert [one["name"] for one in match["acls"]] == ["bill"]
    assert admin.run("acls", "delete", *who, text="n\n").exit_code == 1
    asked = admin.run("acls", "delete", *who, "--operation", "read", text="y\n")
    assert "Delete 1 entry?" in asked.stderr
    gone = admin.document("acls", "delete", *who, "--yes")["acls"]
    assert sorted(one["operation"] for one in gone) == ["all", "alter", "write"]
    assert admin.shown("acls", "list", *who) == "There are no ACLs.\n"


def test_a_refusal_names_the_missing_right(admin: Commands, ann: Commands, tmp_path: Path) -> None:
    topic, login = fresh("prices"), _login(tmp_path, "secret")
    admin.shown("topics", "create", topic)
    may = ("acls", "create", "--principal", "User:ann", "--topic", topic, "--operation")
    line = ann.refusal("topics", "describe", topic, *login)
    assert f"needs the right DESCRIBE on topic {topic} (TOPIC_AUTHORIZATION_FAILED)" in line
    admin.shown(*may, "describe")
    line = ann.refusal("produce", topic, *login, "-X", "enable.idempotence=false", text="1\n")
    assert f"needs the right WRITE on topic {topic} (TOPIC_AUTHORIZATION_FAILED)" in line
    line = ann.refusal("consume", topic, *login, "--from", "end")
    assert f"needs the right READ on topic {topic}" in line
    line = ann.refusal("topics", "delete", topic, "--yes", *login)
    assert f"needs the right DELETE on topic {topic}" in line
    line = ann.refusal("topics", "create", fresh("other"), *login)
    assert "needs the right CREATE on topic other" in line
    line = ann.refusal("acls", "list", *login)
    assert "needs the right DESCRIBE on the cluster (CLUSTER_AUTHORIZATION_FAILED)" in line
    admin.shown(*may, "read")
    line = ann.refusal("consume", topic, "--group", "billing", "--to", "end", *login)
    assert "needs the right READ on group billing (GROUP_AUTHORIZATION_FAILED)" in line


def test_a_user_with_the_rights_needs_only_a_clients_properties(
    admin: Commands, ann: Commands, tmp_path: Path
) -> None:
    topic, login = fresh("prices"), _login(tmp_path, "secret")
    admin.shown("topics", "create", topic)
    admin.shown("acls", "create", "--principal", "User:ann", "--topic", topic,
                "--operation", "read", "--operation", "write")  # fmt: skip
    ann.shown("produce", topic, *login, text="1\n")
    assert ann.shown("consume", topic, "--to", "end", *login) == "1\n"


def test_a_user_who_may_not_read_settings_sees_the_rest(
    admin: Commands, ann: Commands, tmp_path: Path
) -> None:
    topic, login = fresh("prices"), _login(tmp_path, "secret")
    admin.shown("topics", "create", topic, "--compact")
    may = ("acls", "create", "--principal", "User:ann", "--topic", topic, "--operation")
    admin.shown(*may, "describe")
    listed = ann.run("topics", "list", *login)
    assert re.search(rf"^{topic} +1 +1 +\?$", listed.stdout, re.M)
    assert "needs the right DESCRIBE_CONFIGS" in listed.stderr
    (one,) = [
        one
        for one in ann.document("topics", "list", *login)["topics"]
        if one["topic"] == topic
    ]
    assert one["cleanup_policy"] is None
    described = ann.run("topics", "describe", topic, *login)
    assert described.stdout.startswith(f"{topic}  1 partition")
    assert f"need the right DESCRIBE_CONFIGS on topic {topic}" in described.stderr
    admin.shown(*may, "DESCRIBE_CONFIGS")  # as the message has it
    assert re.search(rf"^{topic} +1 +1 +compact$", ann.shown("topics", "list", *login), re.M)


def test_wrong_credentials_are_reported_soon(ann: Commands, tmp_path: Path) -> None:
    line = ann.refusal("topics", "list", *_login(tmp_path, "wrong"))
    assert "uthentication" in line


@pytest.mark.kafka
def test_a_kafka_without_an_authorizer_is_reported(kafka: KafkaProcess) -> None:
    _expect_no_authorizer(Commands(kafka.bootstrap))


def test_a_broker_without_an_authorizer_is_reported(tmp_path: Path) -> None:
    starts = starting(ForkedOdradek, tmp_path)
    _expect_no_authorizer(Commands(next(starts)().bootstrap))
    assert next(starts, None) is None


def _expect_no_authorizer(admin: Commands) -> None:
    line = admin.refusal("acls", "list")
    assert "has no authorizer" in line and "authorizer.class.name" in line
    bob = ("--principal", "User:bob", "--operation", "read", "--topic", "t")
    line = admin.refusal("acls", "create", *bob)
    assert "has no authorizer" in line and "(SECURITY_DISABLED)" in line
