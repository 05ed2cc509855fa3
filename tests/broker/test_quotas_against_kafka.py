"""Quotas beside Apache Kafka: what the APIs and Kafka's own command say, and who is held back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from bench.processes import KafkaProcess, OdradekProcess, kafka_tool
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_topics import CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import (
    ProduceRequest,
)
from tests.broker.kafka_peer import Peer
from tests.protocol.kafka_jars import require_jars
from tests.support.asking import await_topic, create_topics
from tests.support.forking import ForkedOdradek
from tests.support.requests import creatable, creating, producing
from tests.support.waiting import last_answer, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

# A burst is what two seconds bring.
SETTINGS = {
    "quota.window.num": "3",
    "quota.window.size.seconds": "1",
    "controller.quota.window.num": "4",
    "auto.create.topics.enable": "false",
}
# A throttle time is shorter by the time that has passed since the request before.
SLACK_MS = 8_000
# Kafka's broker hears of what its controller has done a little later.
EXACT, DEFAULT, ANY = 0, 1, 2


@dataclass
class Both:
    """The two brokers."""

    ours: OdradekProcess
    kafka: KafkaProcess

    def __iter__(self) -> Iterator[OdradekProcess | KafkaProcess]:
        yield from (self.ours, self.kafka)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    require_jars()
    path = tmp_path_factory.mktemp("quotas")
    made = Both(ForkedOdradek(path / "ours", SETTINGS), KafkaProcess(path / "kafka", SETTINGS))
    try:
        for one in made:
            one.start()
        yield made
    finally:
        for one in made:
            one.stop()


def entry(entity: Mapping[str, str | None], *operations: tuple[str, float | None]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in operations
        ],
    )


def alter(*entries: EntryData, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def describe(
    *components: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=how, match=match)
            for kind, how, match in components
        ],
        strict=strict,
    )


A, B = {"client-id": "a"}, {"user": "b"}
RATE, FETCH, TIME, CHANGES, CONNECTIONS = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
)  # fmt: skip

SCRIPT: Sequence[Any] = [
    describe(),
    alter(),
    alter(entry(A, (RATE, 1000.0), (FETCH, 2000.0), (TIME, 12.5), (CHANGES, 0.5))),
    alter(entry(B, (RATE, 1000.0)), entry({"user": None}, (RATE, 500.0))),
    alter(entry({"user": "b", "client-id": "a"}, (TIME, 1.0)), validate_only=True),
    alter(entry({"user": "b", "client-id": "a"}, (TIME, 1.0))),
    alter(entry({"client-id": None, "user": "b"}, (TIME, 2.0))),
    alter(entry({"client-id": None, "user": None}, (TIME, 3.0))),
    alter(entry({"ip": "127.0.0.9"}, (CONNECTIONS, 10.0))),
    alter(entry({"ip": None}, (CONNECTIONS, 5e6))),
    describe(),
    *(
        describe((kind, how, match), strict=strict)
        for kind, name in (("user", "b"), ("client-id", "a"), ("ip", "127.0.0.9"))
        for how, match in ((EXACT, name), (EXACT, "other"), (DEFAULT, None), (ANY, None))
        for strict in (False, True)
    ),
    describe(("user", ANY, None), ("client-id", ANY, None), strict=True),
    describe(("user", EXACT, "b"), ("client-id", DEFAULT, None)),
    # What makes no sense.
    *(describe((kind, EXACT, "x")) for kind in ("", "group", "User")),
    describe(("user", EXACT, None)),
    describe(("user", DEFAULT, "x")),
    describe(("user", ANY, "x")),
    describe(("user", 3, "x")),
    describe(("user", 3, None)),
    describe(("user", EXACT, "x"), ("user", ANY, None)),
    describe(("ip", ANY, None), ("user", ANY, None)),
    describe(("client-id", DEFAULT, None), ("ip", ANY, None)),
    alter(entry({}, (RATE, 1.0))),
    alter(entry({"group": "x"}, (RATE, 1.0))),
    alter(entry({"user": ""}, (RATE, 1.0)), entry({"client-id": ""}), entry({"ip": ""})),
    alter(entry({"ip": "127.0.0.9", "user": "x"}, (CONNECTIONS, 1.0))),
    alter(entry({"ip": "no such host"}, (CONNECTIONS, 1.0))),
    alter(entry({"ip": "127.0.0.9"}, (RATE, 1.0)), entry(A, (CONNECTIONS, 1.0))),
    alter(entry({"user": "x"}, ("nosuch", 1.0)), entry({"user": "y"}, ("nosuch", None))),
    *(
        alter(entry({"user": "x"}, (key, value)))
        for key in (RATE, FETCH, TIME, CHANGES)
        for value in (0.0, -1.0, 0.25, 1e-7, 1.0000001, 1e19, float("inf"))
    ),
    *(
        alter(entry({"ip": "127.0.0.8"}, (CONNECTIONS, value)))
        for value in (0.0, 0.5, 1.0, 2147483647.0, 2147483648.0)
    ),
    alter(entry({"user": "x"}, (RATE, 5.0), (RATE, 6.0))),
    alter(entry({"user": "z"}, (RATE, 7.0)), entry({"user": "z"}, (RATE, 8.0)), entry(A)),
    alter(entry({"user": "w"}, (FETCH, 5.0), (RATE, 0.0))),
    describe(),
    alter(*(entry({"user": one}, *((key, None) for key in (RATE, FETCH, TIME, CHANGES)))
            for one in "bxz")),
    alter(entry(A, (RATE, None), (FETCH, None), (TIME, None), (CHANGES, None), ("nosuch", None))),
    alter(entry({"user": None}, (RATE, None))),
    alter(entry({"ip": "127.0.0.9"}, (CONNECTIONS, None))),
    alter(entry({"ip": "127.0.0.8"}, (CONNECTIONS, None))),
    alter(entry({"ip": None}, (CONNECTIONS, None))),
    alter(entry({"user": "b", "client-id": "a"}, (TIME, None))),
    alter(entry({"client-id": None, "user": "b"}, (TIME, None))),
    alter(entry({"client-id": None, "user": None}, (TIME, None))),
    describe(),
]  # fmt: skip


def test_the_same_requests_get_the_same_answers(both: Both) -> None:
    differences = []
    with Peer(both.ours.port) as ours, Peer(both.kafka.port) as kafka:
        for request in SCRIPT:
            for version in (0, 1):
                mine = plain(ours.ask(request, version))
                theirs = _kafkas_answer(kafka, request, version, mine)
                if theirs != mine:
                    differences.append(f"{request} v{version}: {mine} != {theirs}")
    assert not differences, "\n".join(differences)


def _kafkas_answer(kafka: Peer, request: Any, version: int, mine: Any) -> Any:
    """Ask until Kafka's broker has heard of the changes; a change itself is sent once."""
    return last_answer(
        lambda: plain(kafka.ask(request, version)),
        lambda theirs: theirs == mine or isinstance(request, AlterClientQuotasRequest),
    )


def named(entity: Sequence[Any]) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in entity)


def in_force(one: OdradekProcess | KafkaProcess, *entries: EntryData) -> None:
    """Set quotas, and wait until the broker has heard of them."""
    with Peer(one.port, "an-admin") as peer:
        put_in_force(peer, *entries)


def put_in_force(peer: Peer, *entries: EntryData) -> None:
    """Set quotas over a connection, and wait until the broker has heard of them."""
    answer = peer.ask(alter(*entries), 1)
    assert not any(entry.error_code for entry in answer.entries), answer
    wanted = {
        (named(entry.entity), op.key): None if op.remove else op.value
        for entry in entries
        for op in entry.ops
    }

    def are_known() -> bool:
        found = {
            (named(entry.entity), one.key): one.value
            for entry in peer.ask(describe(), 1).entries
            for one in entry.values
        }
        return all(found.get(key) == value for key, value in wanted.items())

    wait_until(are_known, "the quotas are in force")


def make_topic(one: OdradekProcess | KafkaProcess, name: str) -> None:
    with Peer(one.port) as peer:
        create_topics(peer, name)
        await_topic(peer, name)


def creation(name: str, partitions: int) -> CreateTopicsRequest:
    return creating(creatable(name, partitions))


def production(topic: str, size: int) -> ProduceRequest:
    batch = encode_batch([Record(0, int(time.time() * 1000), b"k", b"v" * size)])
    return producing(topic, batch, acks=1)


def fetching(
    topic: str, session_id: int = 0, epoch: int = 0, *, size_max: int = 32_000
) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=size_max,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=[wanted])] if not epoch else [],
        forgotten_topics_data=[],
    )


def test_a_client_that_produces_too_much_is_throttled_and_then_not_read(both: Both) -> None:
    throttles = []
    for one in both:
        make_topic(one, "produced")
        in_force(one, entry({"client-id": "p"}, (RATE, 20_000.0)))
        with Peer(one.port, "p") as peer, Peer(one.port, "other") as other:
            begun = time.monotonic()
            throttle_ms = peer.ask(production("produced", 60_000), 9).throttle_time_ms
            # 60 kB where two seconds have 40.
            assert throttle_ms == pytest.approx(1_000, abs=50)
            assert other.ask(production("produced", 60_000), 9).throttle_time_ms == 0
            peer.ask(MetadataRequest(topics=[]), 9)
            assert time.monotonic() - begun >= throttle_ms / 1000
        with Peer(one.port, "p") as peer:  # another connection is read, and all the same counted
            throttles.append(peer.ask(production("produced", 600_000), 9).throttle_time_ms)
    assert throttles[0] == pytest.approx(throttles[1], abs=SLACK_MS)
    assert throttles[0] == pytest.approx(31_000, abs=SLACK_MS)


def test_a_fetch_of_too_much_is_emptied_and_its_session_stays_as_it_is(both: Both) -> None:
    for one in both:
        make_topic(one, "fetched")
        with Peer(one.port, "writer") as writer:
            for _ in range(4):
                writer.ask(production("fetched", 15_000), 9)
        in_force(one, entry({"client-id": "f"}, (FETCH, 20_000.0)))
        with Peer(one.port, "f") as peer:
            first = again = peer.ask(fetching("fetched"), 12)
            records = first.responses[0].partitions[0].records
            assert first.throttle_time_ms == 0
            assert first.session_id
            epoch = 1
            while not again.throttle_time_ms:
                again = peer.ask(fetching("fetched", first.session_id, epoch), 12)
                epoch += 1
            assert again.throttle_time_ms < 1_300
            assert (again.responses, again.error_code) == ([], 0)
            assert again.session_id == first.session_id
            # What was not sent was not counted: after the wait it is there.
            while again.throttle_time_ms:
                again = peer.ask(fetching("fetched", first.session_id, epoch), 12)
                epoch += 1
            assert len(again.responses[0].partitions[0].records) == len(records)
            # A session does not begin by an answer that is emptied.
            while not (refused := peer.ask(fetching("fetched"), 12)).throttle_time_ms:
                pass
            assert (refused.session_id, refused.responses) == (0, [])
            # Who asks for more than two seconds bring gets as much, or it would wait for ever.
            much = fetching("fetched", size_max=1_000_000)
            while (answer := peer.ask(much, 12)).throttle_time_ms:
                pass
            assert 30_000 < len(answer.responses[0].partitions[0].records) <= 40_000


def test_changes_of_topics_come_out_of_a_bucket(both: Both) -> None:
    told: list[tuple[list[int], list[int]]] = []
    took_ms: list[float] = []
    for one in both:
        in_force(one, entry({"client-id": "c"}, (CHANGES, 1.0)))
        in_force(one, entry({"client-id": "old"}, (CHANGES, 1.0)))

        def ask(request: Any, version: int, port: int = one.port, client_id: str = "c") -> Any:
            with Peer(port, client_id) as peer:
                return peer.ask(request, version)

        # Of four tokens as many are taken as are wanted; then none, until all is paid.
        begun = time.monotonic()
        made = ask(creation("many", 34), 7)
        refused = ask(creation("few", 1), 7)
        many = [DeleteTopicState(name="many")]
        kept = ask(DeleteTopicsRequest(topics=many, timeout_ms=9_000), 6)
        wanted = CreatePartitionsTopic(name="many", count=36, assignments=None)
        enlarge = CreatePartitionsRequest(topics=[wanted], timeout_ms=9_000, validate_only=False)
        same = ask(enlarge, 3)
        # Older clients cannot be told to come back: theirs is done, and they wait.
        older = ask(creation("older", 34), 5, client_id="old")
        took_ms.append((time.monotonic() - begun) * 1000)
        results = (*made.topics, *refused.topics, *kept.responses, *same.results, *older.topics)
        told.append(
            (
                [result.error_code for result in results],
                [answer.throttle_time_ms for answer in (made, refused, kept, same, older)],
            )
        )
    assert told[0][0] == told[1][0] == [0, *[ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 3, 0]
    for (_, throttles), passed_ms in zip(told, took_ms, strict=True):
        assert throttles[0] == 0
        # What has been paid while the machine was busy is not waited for again.
        assert min(throttles[1:]) >= 30_000 - passed_ms - SLACK_MS
        assert max(throttles[1:]) <= 30_000 + SLACK_MS


@pytest.mark.interop
def test_an_address_connects_as_often_as_it_may(both: Both) -> None:
    for one in both:
        with Peer(one.port, "an-admin") as admin:  # from before connections are limited
            put_in_force(admin, entry({"ip": "127.0.0.1"}, (CONNECTIONS, 1.0)))
            answered = closed_s = 0.0
            for _ in range(6):
                begun = time.monotonic()
                try:
                    with Peer(one.port) as peer:
                        peer.ask(MetadataRequest(topics=[]), 9)
                        answered += 1
                except (AssertionError, ConnectionError):
                    closed_s += time.monotonic() - begun
            # One a second, two seconds' worth at once; the others are let wait before the end.
            assert 1 <= answered < 6, (one, answered)
            assert closed_s > 0.5, (one, closed_s)
            put_in_force(admin, entry({"ip": "127.0.0.1"}, (CONNECTIONS, None)))


COMMANDS: Sequence[Sequence[str]] = [
    ["--alter", "--add-config", "producer_byte_rate=1024,request_percentage=12.5",
     "--entity-type", "users", "--entity-name", "u 1", "--entity-type", "clients",
     "--entity-name", "c"],
    ["--alter", "--add-config", "consumer_byte_rate=2048", "--entity-type", "clients",
     "--entity-default"],
    ["--alter", "--add-config", "connection_creation_rate=2000", "--ip", "127.0.0.7"],
    ["--alter", "--add-config", "nosuch=1", "--entity-type", "clients", "--entity-name", "c"],
    ["--describe", "--entity-type", "users", "--entity-type", "clients"],
    ["--describe", "--client-defaults"],
    ["--describe", "--ip", "127.0.0.7"],
    ["--alter", "--delete-config", "consumer_byte_rate", "--client-defaults"],
    ["--describe", "--client-defaults"],
]  # fmt: skip


@pytest.mark.interop
def test_kafkas_command_prints_the_same(both: Both) -> None:
    printed = [
        [
            kafka_tool(
                ["kafka.admin.ConfigCommand", "--bootstrap-server", one.bootstrap, *command],
                check=False,
            )
            for command in COMMANDS
        ]
        for one in both
    ]
    for command, mine, theirs in zip(COMMANDS, *printed, strict=True):
        assert sorted(mine.stdout.splitlines()) == sorted(theirs.stdout.splitlines()), command
        assert mine.returncode == theirs.returncode, command
        assert mine.stderr.splitlines()[:1] == theirs.stderr.splitlines()[:1], command
    assert "producer_byte_rate=1024.0" in printed[0][4].stdout


def plain(response: Any) -> Any:
    """Return an answer without the order of what has none, and without what took its time."""
    if isinstance(response, list):
        return sorted(map(plain, response), key=repr)
    if hasattr(response, "__dataclass_fields__"):
        return {
            name: plain(getattr(response, name))
            for name in response.__dataclass_fields__
            if name != "throttle_time_ms"
        }
    return response
