"""The environments of the quick starts of apache/kafka and cp-kafka: they start, or say why not.

As their compose files have them, with ports that are free, and the loopback address in the place
of a container's own name and of every interface.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.processes import OdradekProcess, free_port
from tests.support.forking import ForkedOdradek

pytestmark = pytest.mark.slow

Environment = Mapping[str, str]

ONE_NODE = {
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
# A single node of apache/kafka, as its documentation runs it.
APACHE = {
    **ONE_NODE,
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{other}",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://127.0.0.1:{port}",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:{other}",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
    "KAFKA_NUM_PARTITIONS": "3",
}
# Its compose file for one node: a listener for the host besides the one between containers.
APACHE_COMPOSE = {
    **APACHE,
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT"
    ),
    "KAFKA_LISTENERS": (
        "CONTROLLER://:{other},PLAINTEXT_HOST://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{third}"
    ),
    "KAFKA_ADVERTISED_LISTENERS": (
        "PLAINTEXT_HOST://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{third}"
    ),
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LOG_DIRS": "{folder}/kraft-combined-logs",
}
# cp-kafka with KRaft, as in Confluent's quick start.
CONFLUENT = {
    **ONE_NODE,
    "KAFKA_NODE_ID": "1",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT"
    ),
    "KAFKA_ADVERTISED_LISTENERS": (
        "PLAINTEXT://127.0.0.1:{third},PLAINTEXT_HOST://127.0.0.1:{port}"
    ),
    "KAFKA_JMX_PORT": "9101",
    "KAFKA_JMX_HOSTNAME": "localhost",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:{other}",
    "KAFKA_LISTENERS": (
        "PLAINTEXT://127.0.0.1:{third},CONTROLLER://127.0.0.1:{other},"
        "PLAINTEXT_HOST://127.0.0.1:{port}"
    ),
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LOG_DIRS": "{folder}/kraft-combined-logs",
    "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
}
# The same with Confluent Server's own settings.
CONFLUENT_SERVER = {
    **CONFLUENT,
    "KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_CONFLUENT_BALANCER_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_CONFLUENT_SCHEMA_REGISTRY_URL": "http://schema-registry:8081",
    "KAFKA_METRIC_REPORTERS": "io.confluent.metrics.reporter.ConfluentMetricsReporter",
    "CONFLUENT_METRICS_REPORTER_BOOTSTRAP_SERVERS": "127.0.0.1:{third}",
    "CONFLUENT_METRICS_ENABLE": "true",
    "CONFLUENT_SUPPORT_CUSTOMER_ID": "anonymous",
}
# cp-kafka before 8, beside ZooKeeper: no listeners but the advertised ones.
ZOOKEEPER = {
    **ONE_NODE,
    "KAFKA_BROKER_ID": "1",
    "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_ADVERTISED_LISTENERS": (
        "PLAINTEXT://127.0.0.1:{third},PLAINTEXT_HOST://127.0.0.1:{port}"
    ),
}
OF_THE_JVM = {
    "KAFKA_HEAP_OPTS": "-Xmx1G -Xms1G",
    "KAFKA_OPTS": "-javaagent:/agent.jar",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseG1GC",
    "KAFKA_GC_LOG_OPTS": "-Xlog:gc",
    "KAFKA_JMX_OPTS": "-Dcom.sun.management.jmxremote",
    "KAFKA_JMX_PORT": "9101",
    "KAFKA_LOG4J_OPTS": "-Dlog4j2.configurationFile=/log4j2.yaml",
    "KAFKA_LOG4J_LOGGERS": "kafka.controller=INFO",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL": "ERROR",
    "KAFKA_DEBUG": "y",
}

EVERYWHERE = ("listener=PLAINTEXT address=0.0.0.0:", "listener=PLAINTEXT_HOST address=0.0.0.0:")

# Name, environment, and what is warned of: a word of each line.
STARTING: list[tuple[str, Environment, tuple[str, ...]]] = [
    ("apache/kafka", APACHE, ()),
    ("apache/kafka, its compose file", APACHE_COMPOSE, ()),
    ("apache/kafka, one broker of several", {**APACHE, "KAFKA_PROCESS_ROLES": "broker"}, ()),
    ("cp-kafka", CONFLUENT, ()),
    ("cp-server", CONFLUENT_SERVER, (
        "confluent.balancer.topic", "confluent.license.topic", "confluent.schema.registry.url",
    )),
    # Those listen on every interface, and are reported.
    ("cp-kafka with ZooKeeper", ZOOKEEPER, ("zookeeper.connect", *EVERYWHERE)),
    ("settings of the JVM", {**APACHE, **OF_THE_JVM}, ()),
    ("an underscore and a dash", {**APACHE, "KAFKA_A__B___C": "x"}, ("a_b-c (environment",)),
    ("an empty variable", {**ZOOKEEPER, "KAFKA_LISTENERS": ""}, (
        "zookeeper.connect", *EVERYWHERE,
    )),
]  # fmt: skip

# Name, environment, and what is in the one line that ends the start.
REFUSED: list[tuple[str, Environment, tuple[str, ...]]] = [
    (
        "a controller by itself",
        {**APACHE, "KAFKA_PROCESS_ROLES": "controller"},
        ("process.roles must contain broker", "KAFKA_PROCESS_ROLES"),
    ),
    (
        "clients by TLS",
        {
            **APACHE,
            "KAFKA_LISTENERS": "SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{other}",
            "KAFKA_ADVERTISED_LISTENERS": "SSL://127.0.0.1:{port}",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,SSL:SSL",
            "KAFKA_SSL_KEYSTORE_FILENAME": "kafka01.keystore.jks",
        },
        ("SSL", "TLS needs a certificate", "ssl.keystore.location"),
    ),
    (
        "an unknown listener",
        {**APACHE, "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT"},
        ("No security protocol defined for listener PLAINTEXT",),
    ),
    (
        "every interface advertised to clients",
        {**APACHE, "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://0.0.0.0:{port}"},
        ("nonroutable meta-address 0.0.0.0",),
    ),
]


def process(folder: Path, environment: Environment) -> OdradekProcess:
    """Return a broker with an environment; --set gives what no image's compose file says."""
    ports = {name: str(free_port()) for name in ("port", "other", "third")}
    ports["folder"] = str(folder)
    filled = {key: re.sub(r"\{(\w+)\}", lambda m: ports[m[1]], value)
              for key, value in environment.items()}  # fmt: skip
    return ForkedOdradek(
        folder / "broker",
        environment={"KAFKA_LOG_DIRS": str(folder / "data"), **filled},
        port=int(ports["port"]),
        is_bare=True,
    )


@pytest.mark.parametrize(
    ("environment", "warned"), [pytest.param(*case[1:], id=case[0]) for case in STARTING]
)
def test_it_starts(tmp_path: Path, environment: Environment, warned: tuple[str, ...]) -> None:
    broker = process(tmp_path, environment)
    broker.start()
    broker.stop()
    lines = broker.log_text().splitlines()
    loud = [line for line in lines if re.search(r" (WARNING|ERROR) ", line)]
    assert len(loud) == len(warned), loud
    assert all(any(word in line for line in loud) for word in warned), loud


@pytest.mark.parametrize(
    ("environment", "words"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED]
)
def test_it_says_why_it_does_not(
    tmp_path: Path, environment: Environment, words: tuple[str, ...]
) -> None:
    broker = process(tmp_path, environment)
    with pytest.raises(RuntimeError):
        broker.start()
    text = broker.log_text()
    assert re.fullmatch(r"([^\n]+ WARNING [^\n]+\n)*odradek: [^\n]+\n", text), text
    assert all(word in text for word in words), text
