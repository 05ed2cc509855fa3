"""Settings that keep brokers of a cluster from asking each other are refused, with the remedy."""

from __future__ import annotations

import pytest

from odradek.config.effective import resolve_apart, resolve_broker, resolve_listener
from odradek.config.errors import ConfigError
from odradek.config.inter_broker import InterBrokerConfig, inter_broker_listener, own_login
from odradek.config.resolution import Layer, Source
from odradek.config.sasl import SaslConfig

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = "listener.name.in.scram-sha-512.sasl.jaas.config"
MECHANISM = "sasl.mechanism.inter.broker.protocol"
ENABLED = "sasl.enabled.mechanisms"
CLUSTER = {
    "odradek.catalog.url": "sqlite:///catalog.db",
    "listeners": "OUT://127.0.0.1:9092,IN://127.0.0.1:9094",
    "listener.security.protocol.map": "OUT:PLAINTEXT,IN:SASL_SSL",
    "inter.broker.listener.name": "in",
    ENABLED: "SCRAM-SHA-512",
    MECHANISM: "SCRAM-SHA-512",
    LOGIN: f'{SCRAM} required username="broker" password="s3cret";',
}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in CLUSTER.items() if name not in names}


def layer(values: dict[str, str]) -> Layer:
    return Layer(Source.STATIC_BROKER, values)


def problem_of(values: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as error:
        resolve_broker([layer(values)])
    assert "s3cret" not in str(error.value)
    return str(error.value)


def test_the_login_is_the_client_side_of_the_login_module() -> None:
    layers = [layer(CLUSTER)]
    config = resolve_broker(layers).config
    settings = resolve_apart(InterBrokerConfig, layers)
    listener = inter_broker_listener(settings, config.advertised_endpoints)
    assert (listener.name, listener.protocol) == ("IN", "SASL_SSL")
    login = own_login(
        settings.sasl_mechanism_inter_broker_protocol,
        listener.name,
        lambda name, mechanism: resolve_listener(SaslConfig, layers, name, mechanism.lower()),
    )
    assert (login.mechanism, login.username, login.password) == (
        "SCRAM-SHA-512",
        "broker",
        "s3cret",
    )
    assert "s3cret" not in repr(login)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            without("inter.broker.listener.name"),
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are OUT,IN",
        ),
        (
            CLUSTER | {"advertised.listeners": "OUT://127.0.0.1:9092"},
            "based on currently configured listeners are OUT",
        ),
        (
            CLUSTER | {"security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should",
        ),
        (
            without(MECHANISM),
            "sasl.mechanism.inter.broker.protocol=GSSAPI is not supported: set it to one of "
            "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, the login of this broker at others on the "
            "listener IN",
        ),
        (CLUSTER | {MECHANISM: "OAUTHBEARER"}, "=OAUTHBEARER is not supported: set it to one of"),
        (
            CLUSTER | {MECHANISM: "SCRAM-SHA-256"},
            "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms "
            "when SASL is used for inter-broker communication",
        ),
        (without(LOGIN), f"{LOGIN} has no username and password, by which this broker logs in"),
        (CLUSTER | {LOGIN: f"{SCRAM} required username=a;"}, "has no username and password"),
        (
            CLUSTER
            | {
                ENABLED: "PLAIN",
                MECHANISM: "PLAIN",
                "listener.name.in.plain.sasl.jaas.config": f"{PLAIN} required user_a=s3cret;",
            },
            "listener.name.in.plain.sasl.jaas.config has no username and password",
        ),
        (
            CLUSTER | {"listener.name.in.ssl.endpoint.identification.algorithm": "ldaps"},
            "listener IN: ssl.endpoint.identification.algorithm=ldaps is not supported",
        ),
    ],
)
def test_a_member_of_a_cluster_is_refused(values: dict[str, str], problem: str) -> None:
    assert problem in problem_of(values)
    alone = {name: text for name, text in values.items() if not name.startswith("odradek.")}
    resolve_broker([layer(alone)])  # a broker that is alone asks no other


def test_an_unreadable_login_is_reported_once() -> None:
    problem = problem_of(CLUSTER | {LOGIN: f"{SCRAM} required username=a password=s3cret"})
    assert problem.count(LOGIN) == 1


def test_the_default_is_the_listener_named_plaintext() -> None:
    values = {"odradek.catalog.url": "sqlite:///c", "listeners": "PLAINTEXT://127.0.0.1:9092"}
    resolve_broker([layer(values)])
    with_name = values | {"security.inter.broker.protocol": "SSL"}
    assert "are PLAINTEXT" in problem_of(with_name)
    assert "String must be one of" in problem_of(
        values | {"security.inter.broker.protocol": "TLS"}
    )
