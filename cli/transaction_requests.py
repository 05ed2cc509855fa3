"""Requests about transactions and the producers of partitions (KIP-664), for their commands."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odradek.cli.refusals import Act, CommandError, check
from odradek.cli.wire.client import TRANSACTION, Wire
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Partition = tuple[str, int]

# As in Kafka's tool, so that no request takes a broker long.
_BATCH = 500
_UNKNOWN = -1
# As in Kafka's tool: the id is initialized to be fenced, and no transaction follows.
_FENCING_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer as a partition knows it; None stands for an unknown value."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    last_sequence: int | None
    last_timestamp_ms: int | None
    start_offset: int | None

    def document(self) -> dict[str, Any]:
        """Return its JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def find_producers(
    wire: Wire, partitions: Sequence[Partition], broker: int | None = None
) -> list[Producer]:
    """Ask the leaders of partitions, or one broker with replicas; raises CommandError."""
    found = []
    for start in range(0, len(partitions), _BATCH):
        batch = partitions[start : start + _BATCH]
        answers = wire.repeat(
            lambda batch=batch: _ask_producers(wire, batch, broker),  # type: ignore[misc]
            lambda each: [
                one.error_code
                for answer in each
                for topic in answer.topics
                for one in topic.partitions
            ],
        )
        found += [one for answer in answers for one in _read_producers(answer)]
    return sorted(found, key=lambda one: (one.topic, one.partition, one.producer_id))


def find_hanging(
    wire: Wire, partitions: Sequence[Partition], broker: int | None, age_ms: int
) -> list[Producer]:
    """Find open transactions without a record for `age_ms` that no coordinator will end."""
    limit_ms = time.time() * 1000 - age_ms
    candidates = [
        one
        for one in find_producers(wire, partitions, broker)
        if one.start_offset is not None and (one.last_timestamp_ms or 0) < limit_ms
    ]
    if not candidates:
        return []
    ids = _ids_of(wire, {one.producer_id for one in candidates})
    # A coordinator names the partitions for which it will still write a marker.
    expected = {
        (producer_id, topic.topic, number)
        for producer_id, transactional_id in ids.items()
        for topic in describe_transaction(wire, transactional_id, may_be_gone=True)[1].topics
        for number in topic.partitions
    }
    return [
        one
        for one in candidates
        if (one.producer_id, one.topic, one.partition) not in expected
    ]


def describe_transaction(
    wire: Wire, transactional_id: str, *, may_be_gone: bool = False
) -> tuple[int, TransactionState]:
    """Return the coordinator of a transactional id, and its description of the transaction.

    Raises CommandError; with `may_be_gone` an unknown id has no partitions.
    """
    right = f"DESCRIBE on transactional id {transactional_id}"
    act = Act(f"describe transactional id {transactional_id}", right)
    node, answer = wire.ask_coordinator(
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
        act,
        lambda one: [state.error_code for state in one.transaction_states],
        kind=TRANSACTION,
    )
    (found,) = answer.transaction_states
    if not (may_be_gone and found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        check(found.error_code, act)
    return node, found


def terminate(wire: Wire, transactional_id: str) -> None:
    """Abort the transaction of an id by fencing its producer; raises CommandError."""
    right = f"WRITE on transactional id {transactional_id}"
    act = Act(f"terminate the transaction of {transactional_id}", right)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
    )
    _, answer = wire.ask_coordinator(
        transactional_id,
        request,
        InitProducerIdResponse,
        act,
        lambda one: [one.error_code],
        kind=TRANSACTION,
    )
    check(answer.error_code, act)


def write_abort_marker(wire: Wire, producer: Producer) -> None:
    """Abort the open transaction of a producer in a partition; raises CommandError."""
    topic, number = producer.topic, producer.partition
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
        # Unknown before a producer's first marker; no leader's epoch is less than 0.
        coordinator_epoch=producer.coordinator_epoch or 0,
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    act = Act(f"abort the transaction of {topic}-{number}", "ALTER on the cluster")

    def attempt() -> int:
        node = _leaders(wire, [(topic, number)])[topic, number]
        answer = wire.ask(request, WriteTxnMarkersResponse, act, node=node)
        return answer.markers[0].topics[0].partitions[0].error_code

    check(wire.repeat(attempt, lambda code: [code]), act)


def list_transactions(
    wire: Wire, request: ListTransactionsRequest, least: int = 0
) -> dict[int, ListTransactionsResponse]:
    """Ask all brokers for the transactional ids that each coordinates; raises CommandError."""
    act = Act("list transactions", "DESCRIBE on transactional ids")
    requests = dict.fromkeys(wire.brokers, request)
    answers = wire.repeat(
        lambda: wire.ask_each(requests, ListTransactionsResponse, act, least=least),
        lambda each: [one.error_code for one in each.values()],
    )
    for answer in answers.values():
        check(answer.error_code, act)
    return answers


def _ids_of(wire: Wire, producer_ids: Iterable[int]) -> Mapping[int, str]:
    """Return the transactional ids of producers, as far as coordinators know them."""
    request = ListTransactionsRequest(producer_id_filters=sorted(producer_ids))
    return {
        one.producer_id: one.transactional_id
        for answer in list_transactions(wire, request).values()
        for one in answer.transaction_states
    }


def _ask_producers(
    wire: Wire, partitions: Iterable[Partition], broker: int | None
) -> list[DescribeProducersResponse]:
    partitions = list(partitions)
    nodes = _leaders(wire, partitions) if broker is None else dict.fromkeys(partitions, broker)
    wanted: dict[int, dict[str, list[int]]] = {}
    for (topic, number), node in nodes.items():
        wanted.setdefault(node, {}).setdefault(topic, []).append(number)
    requests = {
        node: DescribeProducersRequest(
            topics=[
                TopicRequest(name=name, partition_indexes=numbers)
                for name, numbers in topics.items()
            ]
        )
        for node, topics in wanted.items()
    }
    answers = wire.ask_each(requests, DescribeProducersResponse, Act("describe producers"))
    return list(answers.values())


def _leaders(wire: Wire, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Return the leader of each partition; raises CommandError for one without a leader."""
    wanted = list(partitions)
    known = {
        (name, one.partition_index): one.leader_id
        for name, topic in wire.topics({topic for topic, _ in wanted}).items()
        for one in topic.partitions
    }
    for topic, number in wanted:
        if known.get((topic, number), _UNKNOWN) == _UNKNOWN:
            raise CommandError(f"{topic}-{number} has no leader: odradek cluster status")
    return {one: known[one] for one in wanted}


def _read_producers(answer: DescribeProducersResponse) -> Iterable[Producer]:
    for topic in answer.topics:
        for partition in topic.partitions:
            where = f"{topic.name}-{partition.partition_index}"
            act = Act(f"describe producers of {where}", f"READ on topic {topic.name}")
            check(partition.error_code, act, partition.error_message)
            for one in partition.active_producers:
                yield Producer(
                    topic.name,
                    partition.partition_index,
                    one.producer_id,
                    one.producer_epoch,
                    _known(one.coordinator_epoch),
                    _known(one.last_sequence),
                    _known(one.last_timestamp),
                    _known(one.current_txn_start_offset),
                )


def _known(number: int) -> int | None:
    return None if number == _UNKNOWN else number
