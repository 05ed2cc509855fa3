"""Our metrics have the names that Prometheus' JMX exporter gives to the MBeans of Apache Kafka.

The rules are those of the exporter's configuration for Kafka (kafka-2_0_0.yml, lower-case names),
in our words:

    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=a   Count
        -> kafka_server_brokertopicmetrics_bytesin_total{topic="a"}
    kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Fetch   99thPercentile
        -> kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"}
    kafka.server:type=socket-server-metrics,listener=L,networkProcessor=0   connection-count
        -> kafka_server_socket_server_metrics_connection_count{listener="L",networkProcessor="0"}
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from bench.processes import KafkaProcess, free_port, kafka_tool
from odradek.broker.observability.metrics_reference import all_families
from odradek.config.acl import STANDARD_AUTHORIZER
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.broker.kafka_peer import Peer

pytestmark = pytest.mark.kafka

# Kafka's brokers do not know how far groups are behind: the names of kafka_exporter.
FOREIGN = {
    "kafka_consumergroup_current_offset",
    "kafka_consumergroup_lag",
    "kafka_consumergroup_members",
}
# Made for a topic when its first request fails, which none does here.
ON_USE = {
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": {"topic"},
    "kafka_server_brokertopicmetrics_failedproducerequests_total": {"topic"},
}
# Of these, all are to be here.
COMPLETE = ("kafka_log_logcleaner_", "kafka_log_logcleanermanager_")

_LINE = re.compile(r"(kafka\.[\w.]+):(type=.+):([\w.-]+)=.*")
_KEY = re.compile(r'([\w-]+)=("[^"]*"|[^,]*)')
_PERCENTILE = re.compile(r"(\d+)thPercentile")


def exported(domain: str, keys: Mapping[str, str], attribute: str) -> tuple[str, set[str]]:
    """Return the name and the labels that an attribute of an MBean gets; no name for none."""
    parts = [domain, keys["type"]]
    labels = {re.sub(r"\W", "_", key) for key in set(keys) - {"type", "name"}}
    if "name" not in keys:  # one of Kafka's own metrics, the others are Yammer's
        return _safe([*parts, attribute]), labels
    name = keys["name"]
    percentile = _PERCENTILE.fullmatch(attribute)
    if attribute == "Count" and "PerSec" in name:
        return _safe([*parts, name.partition("PerSec")[0], "total"]), labels
    if percentile:
        return _safe([*parts, name]), labels | {"quantile"}
    if attribute == "Count":
        return _safe([*parts, name, "count"]), labels
    return _safe([*parts, name]) if attribute == "Value" else "", labels


def _safe(words: list[str]) -> str:
    return re.sub(r"[^a-z0-9_]", "_", "_".join(words).lower())


def attributes(text: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """Parse what JmxTool has printed."""
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found:
            domain, keys, attribute = found.groups()
            yield domain, dict(_KEY.findall(keys)), attribute


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """The metrics of a Kafka that has served a producer and a group: labels by name."""
    port = free_port()
    flags = (
        f"port={port} rmi.port={port} host=127.0.0.1 authenticate=false ssl=false".split()
    )
    options = " ".join(f"-Dcom.sun.management.jmxremote.{one}" for one in flags)
    kafka = KafkaProcess(
        tmp_path_factory.mktemp("kafka"),
        {
            "offsets.topic.num.partitions": "1",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_OPTS", f"{options} -Djava.rmi.server.hostname=127.0.0.1")
        kafka.start()
    try:
        _set_quotas(kafka)
        to = ["--bootstrap-server", kafka.bootstrap, "--topic", "orders"]
        kafka_tool(["org.apache.kafka.tools.ConsoleProducer", *to], text="a\nb\n")
        read = [*to, "--from-beginning", "--max-messages", "2", "--group", "readers"]
        kafka_tool(["org.apache.kafka.tools.consumer.ConsoleConsumer", *read])
        url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
        ask = ["org.apache.kafka.tools.JmxTool", "--jmx-url", url, "--one-time"]
        told = kafka_tool([*ask, "--report-format", "properties"]).stdout
    finally:
        kafka.stop()
    found: dict[str, set[str]] = defaultdict(set)
    for one in attributes(told):
        name, labels = exported(*one)
        found[name] |= labels
    return found


def _set_quotas(kafka: KafkaProcess) -> None:
    """Set quotas that hold nobody back: Kafka has metrics of them then."""
    names = "producer_byte_rate consumer_byte_rate request_percentage controller_mutation_rate"
    clients = [OpData(key=key, value=1e9, remove=False) for key in names.split()]
    addresses = [OpData(key="connection_creation_rate", value=1e9, remove=False)]
    request = AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=None) for kind in kinds],
                ops=operations,
            )
            for kinds, operations in ((("user", "client-id"), clients), (("ip",), addresses))
        ],
        validate_only=False,
    )
    with Peer(kafka.port) as peer:
        assert not any(one.error_code for one in peer.ask(request, 1).entries)


def test_each_of_our_metrics_in_kafkas_names_is_one_of_kafkas(
    kafkas: Mapping[str, set[str]],
) -> None:
    ours = [one for one in all_families() if one.name.startswith("kafka_")]
    assert {one.name for one in ours} - set(kafkas) == FOREIGN
    for one in ours:
        if one.name not in FOREIGN:
            theirs = kafkas[one.name] | ON_USE.get(one.name, set())
            assert set(one.labels) <= theirs, one.name


def test_all_metrics_of_kafkas_cleaner_are_there(kafkas: Mapping[str, set[str]]) -> None:
    theirs = {name for name in kafkas if name.startswith(COMPLETE)}
    assert len(theirs) == 9
    assert theirs <= {one.name for one in all_families()}
