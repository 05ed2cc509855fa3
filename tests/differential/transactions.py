"""Scripts of transactions, played against two brokers: both must answer alike.

A script is drawn from a seed. Its steps name producers by their transactional id, and say how far
what a request claims is from what the broker last told: an epoch too old or too new, another
producer's id, a sequence that is not the next. After each step it is waited until the transaction
is no longer about to end, so that no answer depends on who was faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from odradek.broker.topics.names import TRANSACTION_STATE
from odradek.broker.transactions.records import decode_record
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import Record, encode_batch, iterate_batches
from odradek.protocol.control import decode_control
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.differential.wire import Peer
from tests.support.asking import await_coordinator
from tests.support.requests import (
    creatable,
    creating,
    describing,
    fetching,
    listing_offsets,
    producing,
)
from tests.support.waiting import wait_until

PARTITIONS = 2
TIMEOUT_MS = 60_000

Seen = list[Any]


@dataclass
class Claim:
    """What a producer believes that it is."""

    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """A request of a producer, and how far its claims are off."""

    kind: str
    who: str
    version: int = 0
    partition: int = 0
    commit: bool = True
    epoch_off: int = 0
    of: str = ""  # whose producer id it claims, where not its own
    sequence_off: int = 0
    acks: int = -1


def draw(world: int, length: int, seed: int) -> list[Step]:
    """Draw a script of a world's producers: mostly what they do, sometimes what they must not."""
    random = Random(seed)
    names = [f"{world}-{name}" for name in ("a", "b")]
    steps = [Step("init", name, 4) for name in names]
    for _ in range(length):
        who = random.choice(names)
        odd = random.random() < 0.25
        kind = random.choices(
            ["init", "again", "add", "verify", "offsets", "produce", "end", "marker"],
            [2, 2, 5, 1, 1, 9, 7, 0.5],
        )[0]
        # A marker of an epoch to come would leave Kafka's coordinator waiting for good.
        odd = odd and kind != "marker"
        modern = random.random() < 0.6
        version = {
            "init": random.choice([0, 2, 3, 4, 5]),
            "again": random.choice([3, 4, 5]),
            "add": random.choice([0, 1, 3, 3, 3, 4, 5]),
            "verify": random.choice([4, 5]),
            "offsets": random.choice([0, 2, 4]),
            "produce": random.choice([12, 12, 13]) if modern else random.choice([9, 10, 11]),
            "end": 5 if modern else random.choice([0, 1, 2, 3, 4]),
            "marker": random.choice([1, 2]),
        }[kind]
        steps.append(
            Step(
                kind,
                who,
                version,
                partition=random.randrange(PARTITIONS + (random.random() < 0.05)),
                commit=random.random() < 0.6,
                epoch_off=random.choice([-1, 1, 2]) if odd and random.random() < 0.5 else 0,
                of=random.choice(names) if odd and random.random() < 0.3 else "",
                sequence_off=random.choice([-1, 1]) if odd and random.random() < 0.3 else 0,
                acks=random.choice([-1, -1, 1]),
            )
        )
    return steps


class Side:
    """One broker, and what its answers have told the producers."""

    def __init__(self, port: int, topic: str) -> None:
        self.peer = Peer(port)
        self.topic = topic
        self.claims: dict[str, Claim] = {}
        # Producer ids in the order in which they have been met stand for themselves.
        self._ids: dict[int, str] = {-1: "none"}

    def begin(self) -> None:
        """Create the topic, and have the coordinator's topic made."""
        created = self.peer.ask(creating(creatable(self.topic, PARTITIONS)), 5)
        assert created.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        for key_type in (0, 1):
            await_coordinator(self.peer, key_type, "x")
        # Kafka's coordinator first has to be given producer ids.
        wait_until(
            lambda: not self.peer.ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 0
            ).error_code,
            "there are producer ids",
        )
        self.topic_id = self._topic_id()
        for partition in range(PARTITIONS):
            wait_until(lambda at=partition: not self._fetch(self.topic, at, 0).error_code)

    def _topic_id(self) -> bytes:
        def topic_id() -> bytes:
            (topic,) = self.peer.ask(describing(self.topic), 12).topics
            is_there = topic.error_code == 0 and len(topic.partitions) == PARTITIONS
            return topic.topic_id if is_there else b""

        return wait_until(topic_id, f"{self.topic} is there")

    def symbol(self, producer_id: int) -> str:
        """Name a producer id by when it was first met."""
        return self._ids.setdefault(producer_id, f"id{len(self._ids)}")

    def play(self, step: Step) -> Seen:
        """Carry a step out, and return what it has shown, told alike of any broker."""
        seen = getattr(self, f"_{step.kind}")(step)
        self.settle(step.who)
        return [seen, self.state(step.who)]

    def settle(self, who: str) -> None:
        """Wait until a transaction that is about to end has ended."""
        wait_until(lambda: not self._described(who).transaction_state.startswith("Prepare"))

    def state(self, who: str) -> Seen:
        """Return the state of a transactional id."""
        one = self._described(who)
        return [
            one.error_code,
            one.transaction_state,
            one.transaction_timeout_ms,
            one.transaction_start_time_ms > 0,
            self.symbol(one.producer_id) if not one.error_code else "",
            one.producer_epoch,
            [(topic.topic, topic.partitions) for topic in one.topics],
        ]

    def _described(self, who: str) -> Any:
        (one,) = self.peer.ask(
            DescribeTransactionsRequest(transactional_ids=[who]), 0
        ).transaction_states
        return one

    def _claim(self, step: Step) -> tuple[int, int]:
        mine = self.claims.setdefault(step.who, Claim())
        of = self.claims.get(step.of, mine)
        return of.producer_id, max(mine.epoch + step.epoch_off, -1)

    def _init(self, step: Step) -> Seen:
        return self._initialize(step, -1, -1)

    def _again(self, step: Step) -> Seen:
        return self._initialize(step, *self._claim(step))

    def _initialize(self, step: Step, producer_id: int, epoch: int) -> Seen:
        answer = self.peer.ask(
            InitProducerIdRequest(
                transactional_id=step.who,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=producer_id,
                producer_epoch=epoch,
            ),
            step.version,
        )
        if not answer.error_code:
            self.claims[step.who] = Claim(answer.producer_id, answer.producer_epoch)
        return [answer.error_code, self.symbol(answer.producer_id), answer.producer_epoch]

    def _add(self, step: Step) -> Seen:
        return self._added(step, verify_only=False)

    def _verify(self, step: Step) -> Seen:
        return self._added(step, verify_only=True)

    def _added(self, step: Step, *, verify_only: bool) -> Seen:
        producer_id, epoch = self._claim(step)
        topics = [AddPartitionsToTxnTopic(name=self.topic, partitions=[step.partition, 0])]
        if step.partition == 0:
            topics[0].partitions = [0]
        if step.version >= 4:
            one = AddPartitionsToTxnTransaction(
                transactional_id=step.who,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=topics,
            )
            answer = self.peer.ask(AddPartitionsToTxnRequest(transactions=[one]), step.version)
            results = answer.results_by_transaction[0].topic_results
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=step.who,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            results = self.peer.ask(request, step.version).results_by_topic_v3_and_below
        return [
            (result.partition_index, result.partition_error_code)
            for topic in results
            for result in topic.results_by_partition
        ]

    def _offsets(self, step: Step) -> Seen:
        producer_id, epoch = self._claim(step)
        request = AddOffsetsToTxnRequest(
            transactional_id=step.who,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id="a-group",
        )
        return [self.peer.ask(request, step.version).error_code]

    def _produce(self, step: Step) -> Seen:
        producer_id, epoch = self._claim(step)
        claim = self.claims[step.who]
        sequence = max(claim.sequences.get(step.partition, 0) + step.sequence_off, 0)
        batch = encode_batch(
            [Record(0, 1_000, b"k", step.who.encode())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = producing(
            self.topic,
            batch,
            topic_id=self.topic_id,
            partition=step.partition,
            acks=step.acks,
            transactional_id=step.who,
        )
        answer = self.peer.ask(request, step.version)
        (told,) = answer.responses[0].partition_responses
        if not told.error_code:
            claim.sequences[step.partition] = sequence + 1
        return [told.error_code, told.base_offset, _words(told)]

    def _end(self, step: Step) -> Seen:
        producer_id, epoch = self._claim(step)
        request = EndTxnRequest(
            transactional_id=step.who,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=step.commit,
        )
        answer = self.peer.ask(request, step.version)
        if not answer.error_code and step.version >= 5:
            self.claims[step.who] = Claim(answer.producer_id, answer.producer_epoch)
        return [answer.error_code, self.symbol(answer.producer_id), answer.producer_epoch]

    def _marker(self, step: Step) -> Seen:
        producer_id, epoch = self._claim(step)
        if producer_id < 0 or epoch < 0:
            return []
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    transaction_result=step.commit,
                    topics=[
                        WritableTxnMarkerTopic(
                            name=self.topic, partition_indexes=[step.partition]
                        )
                    ],
                    coordinator_epoch=0,
                    transaction_version=0,
                )
            ]
        )
        answer = self.peer.ask(request, step.version)
        return [
            (result.partition_index, result.error_code)
            for marker in answer.markers
            for topic in marker.topics
            for result in topic.partitions
        ]

    # --- what a script has left -------------------------------------------------------------

    def left(self) -> Seen:
        """Return what readers and administrators see in the end."""
        return [
            self._logs(),
            self._producers(),
            self._listed(),
            self._offsets_seen(),
            self._state_log(),
        ]

    def _state_log(self) -> Seen:
        """Return what the coordinator has written of this script's ids, in order."""
        mine = self.topic.removeprefix("t")
        found: Seen = []
        data = bytes(self._fetch(TRANSACTION_STATE, 0, 0).records or b"")
        for position, header in iterate_batches(data):
            for one in decode_records(data[position : position + header.size_bytes]):
                assert one.key is not None
                record = decode_record(one.key, one.value)
                if record is None or not record.transactional_id.startswith(f"{mine}-"):
                    continue
                value = record.value
                found.append([record.transactional_id, one.value and one.value[:2]])
                if value is not None:
                    ids = (value.producer_id, value.previous_producer_id, value.next_producer_id)
                    found[-1] += [
                        *map(self.symbol, ids),
                        value.epoch,
                        value.state.word,
                        value.timeout_ms,
                        value.started_ms > 0,
                        value.client_version,
                        list(value.partitions),
                    ]
        return found

    def _fetch(self, topic: str, partition: int, isolation: int) -> Any:
        request = fetching(topic, partition=partition, isolation=isolation, size_max=2**25)
        return self.peer.ask(request, 12).responses[0].partitions[0]

    def _logs(self) -> Seen:
        found: Seen = []
        for isolation in (0, 1):
            for partition in range(PARTITIONS):
                data = self._fetch(self.topic, partition, isolation)
                aborted = [
                    (self.symbol(one.producer_id), one.first_offset)
                    for one in data.aborted_transactions or ()
                ]
                found.append(
                    [
                        data.error_code,
                        data.high_watermark,
                        data.last_stable_offset,
                        sorted(aborted),
                        self._batches(bytes(data.records or b"")),
                    ]
                )
        return found

    def _batches(self, data: bytes) -> Seen:
        found: Seen = []
        for position, header in iterate_batches(data):
            batch = data[position : position + header.size_bytes]
            kind = ""
            if header.is_control:
                kind = decode_control(decode_records(batch)[0]).type.name
            found.append(
                [
                    header.base_offset,
                    self.symbol(header.producer_id),
                    header.producer_epoch,
                    header.base_sequence,
                    kind,
                ]
            )
        return found

    def _producers(self) -> Seen:
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name=self.topic, partition_indexes=list(range(PARTITIONS + 1))),
                TopicRequest(name="no-such", partition_indexes=[0]),
                TopicRequest(name="no such", partition_indexes=[0]),
            ]
        )
        return [
            [
                topic.name,
                one.partition_index,
                one.error_code,
                one.error_message,
                sorted(
                    [
                        self.symbol(producer.producer_id),
                        producer.producer_epoch,
                        producer.last_sequence,
                        producer.coordinator_epoch,
                        producer.current_txn_start_offset,
                    ]
                    for producer in one.active_producers
                ),
            ]
            for topic in self.peer.ask(request, 0).topics
            for one in topic.partitions
        ]

    def _listed(self) -> Seen:
        mine = self.topic.removeprefix("t")
        requests = [
            (ListTransactionsRequest(), 0),
            (ListTransactionsRequest(state_filters=["Ongoing", "Odd", "ongoing"]), 1),
            (ListTransactionsRequest(state_filters=["Odd"]), 2),
            (ListTransactionsRequest(duration_filter=3_600_000), 1),
            (ListTransactionsRequest(transactional_id_pattern=f"{mine}-a"), 2),
            (ListTransactionsRequest(transactional_id_pattern="a"), 2),
            (ListTransactionsRequest(transactional_id_pattern=".*-(b|c)"), 2),
            (ListTransactionsRequest(transactional_id_pattern="(x"), 2),
            (ListTransactionsRequest(transactional_id_pattern=""), 2),
        ]
        found: Seen = []
        for request, version in requests:
            answer = self.peer.ask(request, version)
            states = sorted(
                [one.transactional_id, self.symbol(one.producer_id), one.transaction_state]
                for one in answer.transaction_states
                if one.transactional_id.startswith(f"{mine}-")
            )
            found.append([answer.error_code, answer.unknown_state_filters, states])
        return found

    def _offsets_seen(self) -> Seen:
        found: Seen = []
        for isolation in (0, 1):
            for timestamp in (-1, -2, -3, 1_000):
                places = {self.topic: range(PARTITIONS)}
                request = listing_offsets(places, timestamp, isolation=isolation)
                (topic,) = self.peer.ask(request, 7).topics
                found.append(
                    sorted(
                        (one.partition_index, one.error_code, timestamp != -3 and one.offset)
                        for one in topic.partitions
                    )
                )
        return found


def _words(told: Any) -> str:
    # Where Kafka has a sentence, ours is the same; elsewhere we have one, and it has none.
    text = told.error_message or ""
    return text if text.startswith(("Partition was not", "Unable to", "Record was")) else ""


def differences(sides: Sequence[Side], steps: Sequence[Step]) -> list[str]:
    """Play a script on both sides; return what was told differently, with the steps before."""
    for at, step in enumerate(steps):
        ours, theirs = (side.play(step) for side in sides)
        if ours != theirs:
            before = "\n".join(map(str, steps[max(0, at - 8) : at]))
            return [f"{before}\n{step}\n  ours   {ours}\n  theirs {theirs}"]
    ours, theirs = (side.left() for side in sides)
    return [
        f"left\n  ours   {one}\n  theirs {other}"
        for one, other in zip(ours, theirs, strict=True)
        if one != other
    ]
