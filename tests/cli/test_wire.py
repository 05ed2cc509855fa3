"""The command line's own client: retries, several brokers, and peers that are no brokers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from odradek.cli.client import Connection
from odradek.cli.refusals import Act, CommandError, Unavailable
from odradek.cli.wire.client import TRANSACTION, Wire
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tests.broker.clusters import wait_until_known
from tests.broker.workers import Workers, workers
from tests.cli.commands import Commands
from tests.support.waiting import wait_until

ACT = Act("try it", "DESCRIBE on it")


def _wire(address: str) -> Wire:
    servers = {"bootstrap.servers": address}
    return Connection(servers, connect_timeout_s=0.5).wire(request_timeout_s=5.0)


@contextmanager
def _peer(sent: bytes) -> Iterator[str]:
    """Run a server that sends bytes to each client, and then waits for its end."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.sendall(sent)
                    while client.recv(65_536):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    "passing", [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
def test_a_request_that_changed_nothing_is_repeated(passing: ErrorCode) -> None:
    answers = [passing, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
    wire = _wire("127.0.0.1:1")
    assert wire.repeat(lambda: answers.pop(0), lambda code: [code]) == ErrorCode.NONE
    assert not answers


def test_a_refused_request_is_not_repeated() -> None:
    answers = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    wire = _wire("127.0.0.1:1")
    found = wire.repeat(lambda: answers.pop(0), lambda code: [code])
    assert (found, answers) == (ErrorCode.REQUEST_TIMED_OUT, [ErrorCode.NONE])


@pytest.mark.parametrize(
    "sent",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes((0, 0, 0, 8)) + bytes(8)],
    ids=["nothing", "text", "zeros"],
)
def test_a_peer_that_is_no_broker_is_reported_in_time(sent: bytes) -> None:
    with _peer(sent) as address, pytest.raises(CommandError) as raised, _wire(address):
        pass
    assert raised.value.message.startswith(f"{address} does not answer as Kafka does")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Three workers, each a broker."""
    made = workers(tmp_path_factory.mktemp("workers") / "data", 3)
    made.start()
    for port in made.ports.values():
        wait_until_known(3, port)
    yield made
    made.stop()


@pytest.mark.slow
def test_the_first_of_several_addresses_that_answers_is_used(cluster: Workers) -> None:
    with _wire(f"127.0.0.1:1,PLAINTEXT://{cluster.bootstrap}") as wire:
        assert sorted(wire.brokers) == [1, 2, 3]


@pytest.mark.slow
def test_a_request_that_a_broker_does_not_serve_is_not_sent(cluster: Workers) -> None:
    request = ApiVersionsRequest()
    with _wire(cluster.bootstrap) as wire, pytest.raises(Unavailable) as raised:
        wire.ask(request, ApiVersionsResponse, ACT, least=99)
    words = "could not try it: this broker does not support it (UNSUPPORTED_VERSION)"
    assert raised.value.message == words


@pytest.mark.slow
def test_each_key_is_asked_of_its_own_coordinator(cluster: Workers) -> None:
    nodes = set()
    with _wire(cluster.bootstrap) as wire:
        for number in range(20):
            name = f"payer-{number}"
            node, answer = wire.ask_coordinator(
                name,
                DescribeTransactionsRequest(transactional_ids=[name]),
                DescribeTransactionsResponse,
                ACT,
                lambda one: [state.error_code for state in one.transaction_states],
                kind=TRANSACTION,
            )
            (state,) = answer.transaction_states
            assert state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            nodes.add(node)
    assert nodes == {1, 2, 3}


@pytest.mark.slow
def test_commands_ask_all_brokers_of_a_cluster(cluster: Workers) -> None:
    commands = Commands(cluster.bootstrap)
    commands.shown("topics", "create", "spread", "--partitions", "6")

    def partitions() -> list[int]:
        described = commands.document("logdirs", "describe", "--topic", "spread")["brokers"]
        assert [one["broker"] for one in described] == [1, 2, 3]
        return sorted(
            replica["partition"]
            for one in described
            for home in one["log_dirs"]
            for replica in home["replicas"]
        )

    wait_until(lambda: partitions() == list(range(6)), "all brokers know the topic")
    assert commands.document("transactions", "list") == {"transactions": []}
    assert commands.document("transactions", "producers", "spread") == {"producers": []}
    assert commands.document("share-groups", "list") == {"groups": []}


@pytest.mark.slow
def test_a_broker_that_is_away_is_named(cluster: Workers) -> None:
    with _wire(cluster.bootstrap) as wire:
        wire.brokers[3].port = 1
        with pytest.raises(CommandError) as raised:
            wire.ask(ApiVersionsRequest(), ApiVersionsResponse, ACT, node=3)
    words = "could not try it: broker 3 does not answer: Connection refused"
    assert raised.value.message == words
