"""SASL listeners' lacking settings are reported before the start, and no secret is shown."""

from __future__ import annotations

import pytest

from odradek.config.dynamic import check_dynamic
from odradek.config.effective import resolve_broker, resolve_listener
from odradek.config.errors import ConfigError
from odradek.config.resolution import Layer, Source
from odradek.config.sasl import SaslConfig, jaas_of, users_of
from odradek.config.scram_users import parse_scram_users

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SASL = {
    "listeners": "OUT://127.0.0.1:9093",
    "listener.security.protocol.map": "OUT:SASL_PLAINTEXT",
}
USERS = {"listener.name.out.plain.sasl.jaas.config": f'{PLAIN} required user_a="s3cret";'}


def refused(values: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as error:
        resolve_broker([Layer(Source.STATIC_BROKER, SASL | values)])
    assert "s3cret" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "OUT: GSSAPI is enabled and has no keytab"),
        ({"sasl.enabled.mechanisms": ""}, "OUT: no SASL mechanisms are enabled"),
        (
            {"sasl.enabled.mechanisms": "PLAIN,DIGEST-MD5"},
            "has DIGEST-MD5, which is not supported",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN"},
            "PLAIN is enabled and has no users: set listener.name.out.plain.sasl.jaas.config",
        ),
        (
            USERS | {"listener.name.out.sasl.enabled.mechanisms": "SCRAM-SHA-256,GSSAPI"},
            "GSSAPI is enabled and has no keytab: set listener.name.out.gssapi.sasl.jaas.config",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.out.plain.sasl.jaas.config": f"{PLAIN} required username=a;",
            },
            "PLAIN is enabled and has no users",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.out.plain.sasl.jaas.config": f"{SCRAM} required user_a=s3cret;",
            },
            "listener.name.out.plain.sasl.jaas.config is not about PLAIN",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.out.plain.sasl.jaas.config": f"{PLAIN} required user_a=s3cret",
            },
            "does not end with a semicolon",
        ),
        (
            USERS
            | {
                "sasl.enabled.mechanisms": "PLAIN",
                "connections.max.idle.ms": "100",
            },
            "should always be less than connections.max.idle.ms=100",
        ),
        ({"odradek.scram.users": "alice:s3cret"}, "odradek.scram.users, user 1: write it as"),
        (
            {"listener.name.out.connection.failed.authentication.delay.ms": "-1"},
            "Value must be at least 0",
        ),
    ],
)
def test_missing_settings_are_named(values: dict[str, str], problem: str) -> None:
    assert problem in refused(values)


@pytest.mark.parametrize(
    "values",
    [
        USERS | {"sasl.enabled.mechanisms": "PLAIN"},
        USERS | {"listener.name.out.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"},
        {"sasl.enabled.mechanisms": "SCRAM-SHA-256"},  # its users are in the metadata
        # Without a mechanism's prefix it is for the one that it names.
        {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.jaas.config": f"{PLAIN} required user_a=s3cret;",
        },
    ],
)
def test_sufficient_settings_are_accepted(values: dict[str, str]) -> None:
    resolve_broker([Layer(Source.STATIC_BROKER, SASL | values)])


def test_without_a_sasl_listener_nothing_is_asked_for() -> None:
    resolve_broker([Layer(Source.STATIC_BROKER, {})])


def test_a_mechanisms_users_are_its_own() -> None:
    static = [Layer(Source.STATIC_BROKER, SASL | USERS)]
    shared = resolve_listener(SaslConfig, static, "OUT")
    module = jaas_of(resolve_listener(SaslConfig, static, "OUT", "plain"), shared, "PLAIN")
    assert module is not None
    assert users_of(module) == {"a": "s3cret"}
    other = resolve_listener(SaslConfig, static, "OTHER", "plain")
    assert jaas_of(other, other, "PLAIN") is None


def test_users_are_set_in_a_running_broker_by_listener_and_mechanism() -> None:
    check_dynamic(USERS, per_broker=True)
    with pytest.raises(ConfigError, match="at default cluster level"):
        check_dynamic(USERS, per_broker=False)
    with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
        check_dynamic({"connections.max.reauth.ms": "1"}, per_broker=True)


def test_users_of_scram_are_read_as_kafkas_tool_reads_them() -> None:
    text = (
        'SCRAM-SHA-256=[name=alice,password="a ]=, secret"];\n'
        " SCRAM-SHA-512=[name=bob,iterations=8192,salt=c2FsdA==,saltedpassword=c2FsdGVk]"
    )
    alice, bob = parse_scram_users(text)
    assert (alice.mechanism, alice.name, alice.iterations) == ("SCRAM-SHA-256", "alice", 4096)
    assert alice.password == "a ]=, secret"
    assert (bob.iterations, bob.salt, bob.salted_password) == (8192, b"salt", b"salted")
    assert "secret" not in repr(alice)
    assert parse_scram_users(" ") == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SCRAM-SHA-1=[name=a,password=s3cret]", "user 1: the mechanism is none of SCRAM-SHA-256"),
        ("SCRAM-SHA-256=[password=s3cret]", "user 1: add its name"),
        ("SCRAM-SHA-256=[name=a]", "user 1: add its password"),
        ("SCRAM-SHA-256=[name=a,salt=c2FsdA==]", "user 1: add its password"),
        ("SCRAM-SHA-256=[name=a,salt=s3cret!,password=b]", "the salt is not in base64"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,iterations=1]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,passwort=s3cret]", "has parts other than iterations, name"),
        (
            "SCRAM-SHA-256=[name=a,password=s3cret];SCRAM-SHA-256=[name=a,password=b]",
            "user 2: is given twice",
        ),
        ("SCRAM-SHA-256=[name=a,password=s3cret] x", "user 1: write it as"),
    ],
)
def test_a_mistake_in_users_of_scram_is_reported_with_its_number(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        parse_scram_users(text)
    assert "s3cret" not in str(error.value)
