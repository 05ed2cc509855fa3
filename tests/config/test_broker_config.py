"""What the broker's settings are, which contradict, and which may change while it runs."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.dynamic import check_dynamic
from odradek.config.effective import (
    BROKER_OPTIONS,
    declared_options,
    resolve_broker,
    resolve_topic,
)
from odradek.config.errors import ConfigError
from odradek.config.layers import from_properties, static_layer
from odradek.config.option import values_of
from odradek.config.resolution import Layer, Source
from odradek.config.values import Kind

# The server.properties that Kafka 4 comes with, without its comments.
STOCK = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def static(values: dict[str, str]) -> Layer:
    return Layer(Source.STATIC_BROKER, values, dict.fromkeys(values, "--set"))


def problems(values: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        resolve_broker([static(values)])
    return refused.value.problems


def test_a_broker_without_settings_has_the_declared_defaults() -> None:
    resolved = resolve_broker([])
    assert resolved.config == BrokerConfig()
    assert resolved.warnings == ()
    assert [str(one) for one in resolved.config.bound_endpoints] == ["PLAINTEXT://127.0.0.1:9092"]


def test_kafkas_own_server_properties_loads_without_a_warning() -> None:
    settings = from_properties(STOCK)
    resolved = resolve_broker([static({name: value for name, (value, _) in settings.items()})])
    assert resolved.warnings == ()
    assert [str(one) for one in resolved.config.bound_endpoints] == ["PLAINTEXT://:9092"]
    advertised = [str(one) for one in resolved.config.advertised_endpoints]
    assert advertised == ["PLAINTEXT://localhost:9092"]
    assert resolved.config.data_directories == ("/tmp/kraft-combined-logs",)


def test_log_dir_counts_where_log_dirs_is_not_set() -> None:
    assert BrokerConfig().data_directories == ("./data",)
    assert BrokerConfig(log_dir=("a",)).data_directories == ("a",)
    assert BrokerConfig(log_dir=("a",), log_dirs=("b", "c")).data_directories == ("b", "c")


def test_node_id_and_broker_id_stand_for_each_other() -> None:
    assert resolve_broker([static({"node.id": "7"})]).config.broker_id == 7
    assert resolve_broker([static({"broker.id": "7"})]).config.node_id == 7
    (problem,) = problems({"broker.id": "7", "node.id": "8"})
    assert problem == (
        "You must set `node.id` to the same value as `broker.id`. "
        "(node.id: --set; broker.id: --set)"
    )


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"process.roles": "controller"}, "process.roles must contain broker"),
        ({"log.retention.minutes": "0"}, "log.retention.ms must be unlimited (-1)"),
        ({"log.cleaner.threads": "200"}, "at least 1MB per cleaner thread"),
        ({"queued.max.request.bytes": "5"}, "larger or equal to socket.request.max.bytes"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip can be set to zero only if"),
        ({"offsets.topic.compression.codec": "9"}, "Unknown compression type id: 9"),
        ({"authorizer.class.name": "org.x.Y"}, "Java classes cannot be loaded: set it to org."),
        ({"super.users": "User:a;bob"}, "but got bob. Write User:bob"),
        ({"metrics.listener": "localhost"}, "Write it as host:port"),
        ({"max.connections.per.ip.overrides": "a"}, "write host:count"),
        ({"max.connections.per.ip.overrides": "a:b"}, "b is not a count of connections"),
        ({"max.connections.per.ip.overrides": "a b:1"}, "contains invalid addresses : a b"),
        ({"log.segment.bytes": "1"}, "configuration log.segment.bytes: Value must be at least"),
        ({"controller.quorum.fetch.timeout.ms": "x"}, "Not a number of type INT"),
    ],
)
def test_impossible_values_are_refused_with_their_place(
    values: dict[str, str], problem: str
) -> None:
    (message,) = problems(values)
    assert problem in message
    assert "--set" in message


def test_contradictions_are_reported_all_at_once() -> None:
    values = {
        "log.cleaner.threads": "200",
        "max.connections.per.ip": "0",
        "log.roll.ms": "0",
        "listeners": "PLAINTEXT://0.0.0.0:1",
    }
    assert len(problems(values)) == 4


def test_names_that_nobody_declared_are_warned_of_and_kept_hidden() -> None:
    values = {"log.cleaner.thread": "2", "zookeeper.connect": "h:1", "my.password": "hunter2"}
    resolved = resolve_broker([static(values)])
    assert resolved.warnings == (
        "log.cleaner.thread (--set) is ignored: no such option, did you mean log.cleaner.threads?",
        "zookeeper.connect (--set) is ignored: Kafka has no such option any more",
        "my.password (--set) is ignored: no such option, docs/configs.md lists them all",
    )
    entry = resolved.entries["my.password"]
    assert (entry.value, entry.sensitive, entry.kind) == (None, True, Kind.UNKNOWN)
    assert "hunter2" not in repr(resolved.entries)


def test_security_settings_without_effect_are_warned_of() -> None:
    resolved = resolve_broker(
        [static({"ssl.engine.factory.class": "a.B", "num.network.threads": "3"})]
    )
    assert resolved.warnings == (
        "ssl.engine.factory.class (--set) has no effect: Java classes cannot be loaded.",
    )


def test_options_without_effect_are_described_with_their_values() -> None:
    entries = resolve_broker([static({"controller.quorum.voters": "1@h:9093"})]).entries
    assert entries["controller.quorum.voters"].value == "1@h:9093"
    assert entries["num.network.threads"].value == "3"
    assert entries["ssl.key.password"].sensitive


def test_a_config_resolved_from_its_own_values_is_the_same() -> None:
    config = BrokerConfig(log_cleaner_threads=3, listeners=("PLAINTEXT://h:1",), log_dirs=("a",))
    assert resolve_broker([static(values_of(config))]).config == config


def test_a_dynamic_setting_wins_over_a_static_one() -> None:
    layers = [
        static({"log.cleaner.threads": "2", "log.retention.ms": "5"}),
        Layer(Source.DYNAMIC_DEFAULT_BROKER, {"log.cleaner.threads": "3"}),
        Layer(Source.DYNAMIC_BROKER, {"log.cleaner.threads": "4", "log.retention.ms": "6"}),
    ]
    assert resolve_broker(layers).config.log_cleaner_threads == 4
    assert resolve_broker(layers[:2]).config.log_cleaner_threads == 3
    assert resolve_topic({}, layers).config.retention_ms == 6


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"num.partitions": "3", "log.dirs": "x", "log.retention.ms": "7"},
            "Cannot update these configs dynamically: [num.partitions, log.dirs]",
        ),
        (
            {"log.retention.hours": "7"},
            "Cannot update these configs dynamically: [log.retention.hours]",
        ),
        (
            {"ssl.keystore.location": "x"},
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix: [ssl.keystore.location]",
        ),
        (
            {"listener.name.a.ssl.keystore.location": "x"},
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listener.name.a.ssl.keystore.location]",
        ),
        (
            {"log.retention.ms": "x"},
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            {"log.cleaner.threads": "-1"},
            "Invalid value -1 for configuration log.cleaner.threads: Value must be at least 0",
        ),
    ],
)
def test_a_running_broker_refuses_what_it_cannot_take_up(
    values: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_dynamic(values, per_broker=False)
    assert str(refused.value) == problem


def test_a_running_broker_takes_up_what_is_dynamic() -> None:
    check_dynamic({"log.cleaner.threads": "2", "my.own": "x"}, per_broker=False)
    check_dynamic({"listener.name.a.ssl.keystore.location": "x"}, per_broker=True)


def test_every_option_says_what_it_does() -> None:
    for option in (*declared_options(), *BROKER_OPTIONS):
        assert option.doc.endswith("."), option.name
        assert not option.inert or option.inert.endswith("."), option.name


def test_static_settings_say_where_they_were_written() -> None:
    layer = static_layer(pairs=["num.partitions=many"])
    with pytest.raises(ConfigError, match=r"num\.partitions: Not a number.*\(--set\)"):
        resolve_broker([layer])


def test_similar_names_are_looked_for_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = 0
    search = difflib.get_close_matches

    def counted(*arguments: Any, **options: Any) -> list[str]:
        nonlocal searches
        searches += 1
        return search(*arguments, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    names = {f"log.retention.mz{number}": "1" for number in range(3_000)}
    layers = [Layer(Source.DYNAMIC_BROKER, names, {}), static({})]
    warnings = resolve_broker(layers).warnings
    assert 0 < searches < 100  # each of them takes 0.7 ms
    assert len(warnings) >= len(names)
    assert 0 < sum("did you mean" in one for one in warnings) < 100
