"""Broker processes that ask each other over SASL_SSL, and a real client's transactions on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from bench.processes import OdradekProcess, free_port
from odradek.config.acl import STANDARD_AUTHORIZER
from tests.broker.certificates import Authority
from tests.broker.sasl_client import SCRAM_MODULE
from tests.broker.test_cluster_clients import PARTITIONS, SETTINGS, WAIT_S, create, read_all
from tests.cli.commands import Commands
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_for_http, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

RECORDS = 60


@contextmanager
def running(folder: Path) -> Iterator[list[OdradekProcess]]:
    """Run two brokers with a listener for clients, and one for brokers."""
    authority = Authority()
    secure = {
        **SETTINGS,
        "odradek.catalog.url": f"sqlite://{folder / 'catalog.db'}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_SSL",
        "inter.broker.listener.name": "BROKERS",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.brokers.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.brokers.scram-sha-512.sasl.jaas.config": (
            f'{SCRAM_MODULE} required username="broker" password="of-all";'
        ),
        "odradek.scram.users": "SCRAM-SHA-512=[name=broker,password=of-all]",
        "listener.name.brokers.connections.max.reauth.ms": "1000",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue().pem_file(folder / "server.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.pem_file(folder / "ca.pem")),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",  # the clients
    }
    with ExitStack() as stack:
        brokers = []
        for number in (1, 2):
            one = ForkedOdradek(folder / str(number), is_bare=True)
            ports = {"CLIENTS": one.port, "BROKERS": free_port()}
            one.settings = {
                **secure,
                "node.id": str(number),
                "log.dirs": str(one.data),
                "listeners": ",".join(f"{name}://127.0.0.1:{at}" for name, at in ports.items()),
            }
            one.start()
            stack.callback(lambda one=one: one.process and one.stop())  # type: ignore[misc]
            brokers.append(one)
        yield brokers


def test_transactions_wait_for_the_right_of_the_brokers_and_then_succeed(tmp_path: Path) -> None:
    with running(tmp_path) as brokers:
        bootstrap = ",".join(one.bootstrap for one in brokers)
        create(bootstrap, "t")
        lacking = "allow User:broker the operation CLUSTER_ACTION on the cluster"
        for one in brokers:
            wait_until(lambda one=one: lacking in one.log_text(), "the log has the remedy")  # type: ignore[misc]
        failed: list[KafkaError] = []
        producer = _begin(bootstrap, "a", failed)
        assert producer.flush(2)  # some records wait
        assert not failed
        Commands(brokers[0].bootstrap).shown(
            "acls", "create", "--principal", "User:broker", "--cluster",
            "--operation", "cluster-action",
        )  # fmt: skip
        producer.commit_transaction(WAIT_S)
        _begin(bootstrap, "b", failed).abort_transaction(WAIT_S)
        _begin(bootstrap, "c", failed).commit_transaction(WAIT_S)
        assert sorted(read_all(bootstrap, "t", 2 * RECORDS)) == sorted([*range(RECORDS)] * 2)
        for one in brokers:
            wait_for_http(one)  # it is healthy
            assert "User:broker" not in one.log_text().rpartition("answers again")[2]


def _begin(bootstrap: str, name: str, failed: list[KafkaError]) -> Producer:
    """Begin a transaction over all partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(
            "t",
            str(number).encode(),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    return producer
