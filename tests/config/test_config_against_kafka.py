"""Options, values, errors and descriptions agree with Apache Kafka's own classes.

Where they differ on purpose, the difference stands in kafka_differences.py.
"""

from __future__ import annotations

import random
import re
from itertools import dropwhile
from typing import Any

import pytest

from odradek.config.dynamic import check_dynamic
from odradek.config.effective import (
    BROKER_OPTION,
    TOPIC_OPTION,
    resolve_broker,
    resolve_topic,
)
from odradek.config.errors import ConfigError
from odradek.config.option import Option
from odradek.config.properties import from_properties
from odradek.config.resolution import Layer, Source
from odradek.config.values import Kind, render
from tests.config.conftest import Ask
from tests.config.kafka_differences import (
    KAFKA_4_4,
    NOT_DYNAMIC,
    OTHER_BOUNDS,
    OTHER_DEFAULTS,
    OURS,
    REQUIRED,
    is_stricter,
)

pytestmark = pytest.mark.kafka

# What Kafka needs besides, to be a broker at all.
BASE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "2@localhost:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
}


CATALOG = {"odradek.catalog.url": "sqlite:///catalog.db"}
SASL = CATALOG | {
    "listeners": "IN://127.0.0.1:9092",
    "listener.security.protocol.map": "IN:SASL_SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.in.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required username=a password=b;"
    ),
}

# What is asked of Kafka: all at once, since Java is slow to start.

DESCRIBED: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {}),
    ({"log.retention.ms": " 70 ", "log.retention.hours": "2"}, {"retention.ms": " 80 "}),
    ({"log.retention.minutes": "5", "log.retention.hours": "2"}, {}),
    ({"log.retention.hours": "-1", "log.roll.hours": "3"}, {"segment.ms": "7"}),
    ({"log.roll.ms": "5", "log.roll.jitter.ms": "2"}, {"cleanup.policy": "delete , compact"}),
    ({"log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": "1e-4"}, {}),
    ({"compression.type": "zstd"}, {"compression.type": "gzip", "preallocate": "TRUE"}),
    ({"log.flush.scheduler.interval.ms": "9"}, {"flush.messages": "+1"}),
    ({"ssl.key.password": "secret", "log.dirs": " a , b "}, {}),
    ({"log.cleaner.io.max.bytes.per.second": "1000000", "log.segment.bytes": "1048576"}, {}),
    (
        {
            "listener.name.a.ssl.keystore.location": "x",
            "listener.name.a.ssl.key.password": "secret",
            "listener.name.a.ssl.client.auth": "required",
            "listener.name.a.ssl.keymanager.algorithm": "X",
            "listener.name.a.log.retention.ms": "7",
            "listener.name.a.ssl.allow.dn.changes": " TRUE ",
            "ssl.key.password": "secret",
            "ssl.keystore.location": "y",
            "listener.name.a.plain.sasl.jaas.config": "secret",
            "listener.name.a.foo": "x",
        },
        {},
    ),
]

TOPICS = [
    {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
    {"foo": "5"},
    {"segment.ms": "0"},
    {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
    {"cleanup.policy": "compact,compact"},
    {"cleanup.policy": ""},
    {"leader.replication.throttled.replicas": "1:2,x"},
    {"leader.replication.throttled.replicas": "*"},
]

BROKERS = [
    {"broker.id": "2"},
    {"log.retention.ms": "0"},
    {"log.retention.minutes": "0"},
    {"log.retention.ms": "-5"},
    {"log.cleaner.threads": "200"},
    {"queued.max.request.bytes": "5"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5, ::1:6"},
    {"offsets.topic.compression.codec": "9"},
    {"advertised.listeners": "PLAINTEXT://h:1,CONTROLLER://h:2"},
    {"advertised.listeners": "PLAINTEXT://:1"},
    {"listeners": "plaintext://[::1]:1"},
    {"listener.security.protocol.map": "PLAINTEXT:FOO,CONTROLLER:PLAINTEXT"},
    {"num.partitions": "0"},
    {"log.dirs": ""},
    {"foo": "bar"},
    CATALOG | {"inter.broker.listener.name": "SSL"},
    CATALOG | {"inter.broker.listener.name": "plaintext"},
    CATALOG
    | {
        "inter.broker.listener.name": "PLAINTEXT",
        "security.inter.broker.protocol": "PLAINTEXT",
    },
    CATALOG | {"security.inter.broker.protocol": "PLAINTEXT"},
    CATALOG | {"security.inter.broker.protocol": "SSL"},
    {name: SASL[name] for name in SASL if name != "inter.broker.listener.name"},
    SASL | {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
    SASL | {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
]

REFUSED = [
    {"listeners": "FOO://h:1"},
    {"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"},
    {"listeners": "h:1"},
    {"listeners": "PLAINTEXT://h"},
    {"listeners": "PLAINTEXT://h h:1"},
    {"listeners": "PLAINTEXT://0.0.0.0:1"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
    {"advertised.listeners": "PLAINTEXT://h:1,FOO://h:2"},
    {"listener.security.protocol.map": "PLAINTEXT"},
    {"max.connections.per.ip.overrides": "a b:5"},
    {"max.connections.per.ip.overrides": "a:b"},
    CATALOG | {"inter.broker.listener.name": "FOO"},
    SASL,  # GSSAPI
    SASL | {"inter.broker.listener.name": "OUT"},
]

DYNAMIC: list[tuple[dict[str, str], bool]] = [
    ({"num.partitions": "3", "log.retention.ms": "7"}, True),
    ({"log.retention.ms": "7", "foo": "7"}, False),
    ({"log.retention.hours": "7"}, False),
    ({"log.retention.ms": "x"}, False),
    ({"sasl.kerberos.service.name": "x"}, False),
    ({"log.cleaner.threads": "-1"}, True),
    ({"ssl.keystore.location": "x", "num.partitions": "3"}, True),
    ({"ssl.keystore.location": "x"}, True),
    ({"ssl.keystore.location": "x"}, False),
    ({"ssl.principal.mapping.rules": "DEFAULT"}, True),
    ({"listener.name.a.ssl.principal.mapping.rules": "DEFAULT"}, True),
    ({"listener.name.a.ssl.principal.mapping.rules": "DEFAULT"}, False),
    ({"listener.name.a.ssl.client.auth": "required", "ssl.client.auth": "none"}, True),
    ({"listener.name.a.ssl.client.auth": "required"}, False),
    ({"ssl.client.auth": "required"}, False),
    ({"listener.name.a.foo": "x"}, False),
    ({"listener.name.a.max.connections": "5"}, False),
    ({"listener.name.a.plain.max.connections": "5"}, False),
    ({"listener.name.a.log.cleaner.threads": "-1"}, True),
    ({"listener.name.a.sasl.oauthbearer.jwks.endpoint.url": "file:///etc/passwd"}, True),
    ({"listener.name.a.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "x"}, False),
    ({"config.providers": "file"}, False),
    ({"config.providers.file.class": "X"}, True),
    ({"listener.name.a.ssl.keystore.location": "${file:/etc/passwd:root}"}, True),
]


def _values(chance: random.Random) -> dict[Kind, list[str]]:
    """Make texts for each type: good ones, bad ones, and those at the bounds."""
    edges = [sign * edge + step for edge in (0, 2**15, 2**31, 2**63) for sign in (1, -1)
             for step in (-2, -1, 0, 1, 2)]  # fmt: skip
    numbers = [str(one) for one in (*edges, 4, 9, 10, 17, 18, 22, 23, -131072, 1024, 1048576)]
    integers = [*numbers, "", " ", "+7", "7 ", "\t7", "--7", "1_000", "1.5", "0x7", "\u0663", "x"]
    doubles = ["0", "1", "-1", ".5", "5.", "1e-4", "2E3", "0.5f", "1d", "1.0001", "x", "", "1,5"]
    doubles += [f"{chance.randrange(-200, 200)}e{chance.randrange(-9, 9)}" for _ in range(40)]
    words = ["", "compact", "delete", "broker", "controller", "a", "PLAINTEXT://h:1", "1:2", "*"]
    commas = [",", " , ", "\n,", ",,"]
    lists = ["".join(chance.choices(words + commas, k=chance.randrange(5))) for _ in range(60)]
    strings = ["gzip", " gzip ", "GZIP", "LogAppendTime", "producer", "", "x"]
    return {
        Kind.SHORT: integers,
        Kind.INT: integers,
        Kind.LONG: integers,
        Kind.DOUBLE: doubles,
        Kind.BOOLEAN: ["true", "FALSE", " True ", "yes", "", "1"],
        Kind.STRING: strings,
        Kind.LIST: [*lists, *words, "compact, delete", "delete,compact"],
        Kind.PASSWORD: strings,
    }


def _properties(chance: random.Random) -> list[str]:
    alphabet = ["a", "b", "=", ":", " ", "\t", "\f", "\n", "\r", "\r\n", "\\", "#", "!", "\\u00e9"]
    return ["".join(chance.choices(alphabet, k=chance.randrange(16))) for _ in range(20_000)]


_TEXTS = _values(random.Random(1))
VALUES = [
    [scope, name, text]
    for scope, options in (("topic", TOPIC_OPTION), ("broker", BROKER_OPTION))
    for name, option in options.items()
    if name not in KAFKA_4_4 | OURS | OTHER_BOUNDS and not (option.inert or option.sensitive)
    for text in _TEXTS[option.kind]
]
PROPERTIES = _properties(random.Random(2))


@pytest.fixture(scope="module")
def facts(ask_kafka: Ask) -> dict[str, Any]:
    return ask_kafka(
        values=VALUES,
        properties=PROPERTIES,
        describe=[{"static": BASE | static, "topic": topic} for static, topic in DESCRIBED],
        topics=TOPICS,
        brokers=[BASE | values for values in BROKERS + REFUSED],
        dynamic=[{"values": values, "perBroker": single} for values, single in DYNAMIC],
    )


def test_topic_options_are_kafkas(facts: dict[str, Any]) -> None:
    ours = {name for name in TOPIC_OPTION if name.startswith("odradek.")}
    assert set(TOPIC_OPTION) - KAFKA_4_4 - ours == set(facts["topic"])
    _agree(TOPIC_OPTION, facts["topic"], bounds=True)


def test_broker_options_are_kafkas(facts: dict[str, Any]) -> None:
    assert set(BROKER_OPTION) - KAFKA_4_4 - OURS == set(facts["broker"])
    _agree(BROKER_OPTION, facts["broker"], bounds=False)
    named = {name: one for name, one in BROKER_OPTION.items() if not one.inert}
    _agree(named, facts["broker"], bounds=True)


def test_synonyms_stand_in_kafkas_order_and_units(facts: dict[str, Any]) -> None:
    ours = {
        name: [[one.name, one.convert("1")] for one in option.broker]
        for name, option in TOPIC_OPTION.items()
        if option.broker and name not in KAFKA_4_4 | OURS
    }
    assert ours == facts["synonyms"]


def test_the_same_options_may_change_in_a_running_broker_as_in_kafkas(
    facts: dict[str, Any],
) -> None:
    for name in set(BROKER_OPTION) - KAFKA_4_4 - OURS - NOT_DYNAMIC:
        assert BROKER_OPTION[name].dynamic == facts["updates"].get(name, ""), name


def test_values_parse_print_and_fail_as_kafkas(facts: dict[str, Any]) -> None:
    for (scope, name, text), answer in zip(VALUES, facts["values"], strict=True):
        option = (TOPIC_OPTION if scope == "topic" else BROKER_OPTION)[name]
        ours = {key: _in_order(value) for key, value in _read(option, text).items()}
        theirs = {key: _in_order(value) for key, value in answer.items()}
        assert ours == theirs, (scope, name, text)


def test_properties_files_mean_what_they_mean_to_java(facts: dict[str, Any]) -> None:
    for text, java in zip(PROPERTIES, facts["properties"], strict=True):
        ours: dict[str, str] | None
        try:
            ours = {name: value for name, (value, _) in from_properties(text).items()}
        except ConfigError:
            ours = None
        for settings in (ours, java):
            # To Java a file that ends in a lone backslash sets the option without a name.
            (settings or {}).pop("", None)
        assert ours == java, repr(text)


def test_descriptions_are_kafkas(facts: dict[str, Any]) -> None:
    for (static, topic), described in zip(DESCRIBED, facts["describe"], strict=True):
        layer = Layer(Source.STATIC_BROKER, BASE | static)
        topic_entries = _entries(resolve_topic(topic, [layer]))
        for name, entry in described["topic"].items():
            ours = topic_entries[name]
            line = TOPIC_OPTION[name].broker or ()
            if len(line) > 1:
                ours = _as_kafka_forgets(ours, line[0].name)
            assert ours == entry, (name, static, topic)
        broker_entries = _entries(resolve_broker([layer]))
        for name, entry in described["broker"].items():
            if name not in OTHER_DEFAULTS | NOT_DYNAMIC | REQUIRED:
                assert broker_entries[name] == entry, (name, static)


def test_contradictions_in_a_topic_are_reported_in_kafkas_words(facts: dict[str, Any]) -> None:
    for values, problem in zip(TOPICS, facts["topics"], strict=True):
        assert _problem(resolve_topic, values) == problem


def test_contradictions_in_a_broker_are_reported_in_kafkas_words(facts: dict[str, Any]) -> None:
    answers = facts["brokers"][: len(BROKERS)]
    for values, problem in zip(BROKERS, answers, strict=True):
        layer = Layer(Source.STATIC_BROKER, BASE | values)
        ours = _problem(resolve_broker, [layer])
        assert ours == (problem and problem.removeprefix("requirement failed: ")), values


def test_listeners_that_kafka_refuses_are_refused(facts: dict[str, Any]) -> None:
    answers = facts["brokers"][len(BROKERS) :]
    for values, problem in zip(REFUSED, answers, strict=True):
        layer = Layer(Source.STATIC_BROKER, BASE | values)
        assert problem is not None
        assert _problem(resolve_broker, [layer]) is not None, values


def test_dynamic_changes_are_refused_in_kafkas_words(facts: dict[str, Any]) -> None:
    for (values, per_broker), problem in zip(DYNAMIC, facts["dynamic"], strict=True):
        ours = _problem(lambda v, p=per_broker: check_dynamic(v, per_broker=p), values)
        if is_stricter(values):
            assert ours is not None, values
        else:
            assert ours == problem, values


def _agree(ours: dict[str, Option], kafka: dict[str, Any], *, bounds: bool) -> None:
    for name in set(ours) & set(kafka):
        option, theirs = ours[name], kafka[name]
        assert option.kind.name == theirs["type"], name
        assert option.internal == theirs["internal"], name
        assert theirs["required"] == (name in REQUIRED), name
        if name not in OTHER_DEFAULTS | REQUIRED:
            assert option.default_text == theirs["default"], name
        if bounds and name not in OTHER_BOUNDS:
            valid = option.valid.description if option.valid else ""
            assert _in_order(valid) == _in_order(theirs["valid"] or ""), name


def _read(option: Option, text: str) -> dict[str, str]:
    try:
        return {"value": render(option.read(text))}
    except ConfigError as error:
        return {"error": str(error)}


def _in_order(text: str) -> str:
    """Put some words in order: Java has those of a set in another one each time it runs."""
    word = "(?:classic|consumer|share|streams|DISABLED|DOWNGRADE|UPGRADE|BIDIRECTIONAL)"
    return re.sub(f"{word}(?:, ?{word})+", _sorted_words, text)


def _sorted_words(found: re.Match[str]) -> str:
    return ", ".join(sorted(re.split(", ?", found[0])))


def _problem(act: Any, argument: Any) -> str | None:
    try:
        act(argument)
    except ConfigError as error:
        return str(error)
    return None


def _as_kafka_forgets(entry: dict[str, Any], first: str) -> dict[str, Any]:
    """Leave out what Kafka does: of several synonyms those set before the first one is.

    So it calls a value from server.properties a default, where that says log.retention.hours.
    """
    own = [one for one in entry["synonyms"] if one[2] == Source.TOPIC]
    rest = entry["synonyms"][len(own) :]
    line = own + list(dropwhile(lambda one: one[0] != first, rest))
    return entry | {"synonyms": line, "source": line[0][2] if line else Source.DEFAULT}


def _entries(resolved: Any) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "value": entry.value,
            "source": entry.source,
            "sensitive": entry.sensitive,
            "read_only": entry.read_only,
            "type": entry.kind,
            "synonyms": [[one.name, one.value, one.source] for one in entry.synonyms],
        }
        for name, entry in resolved.entries.items()
    }
