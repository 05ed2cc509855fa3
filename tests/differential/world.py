"""The small world that requests are drawn from: both brokers share it.

Every seed has topics and groups of its own, so that what one seed has left behind is not in the
way of the next. Ids are those of Odradek; `answers.Pairs` knows Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compression import Codec
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from tests.broker.raw_batches import RawBatch, RawRecord

NODE_ID = 1
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32  # types of resources
MEMBERS_MAX = 5  # of a group
# Nothing is to happen by itself while requests are compared.
SETTINGS: Mapping[str, str] = {
    "node.id": str(NODE_ID),
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "3600000",
    "log.cleaner.backoff.ms": "3600000",
    # A long run would meet these at another request in each broker.
    "producer.id.expiration.check.interval.ms": "3600000",
    "offsets.retention.check.interval.ms": "3600000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.max.size": str(MEMBERS_MAX),
    # On a busy machine Kafka's controller takes the broker for dead, and all epochs change.
    "broker.session.timeout.ms": "600000",
}
TOPICS: Mapping[str, Mapping[str, str]] = {
    "orders": {},
    "small": {"max.message.bytes": "1000"},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "spare": {},
}
PARTITIONS = 3
STRANGE_ID = bytes(range(1, 17))

TOPIC_CONFIGS: Mapping[str, tuple[str, ...]] = {
    "retention.ms": ("9000000000000", "-1", "soon", "-2", ""),
    "cleanup.policy": ("compact", "delete", "compact,delete", "archive", ""),
    "compression.type": ("zstd", "producer", "brotli"),
    "segment.ms": ("60000", "0"),
    "segment.bytes": ("1048576", "1"),
    "max.message.bytes": ("100000", "-1"),
    "min.insync.replicas": ("1", "0"),
    "message.timestamp.type": ("CreateTime", "never"),
    "unclean.leader.election.enable": ("true", "perhaps"),
    "min.cleanable.dirty.ratio": ("0.3", "1.5", "x"),
    "min.compaction.lag.ms": ("5", "99999999999999999999"),
    "follower.replication.throttled.replicas": ("*", "0:1", "x"),
    "no.such": ("1",),
}
# Not min.insync.replicas: Kafka, which keeps eligible leaders (KIP-966), lets nobody set it for a
# broker, nor take it back for all.
BROKER_CONFIGS: Mapping[str, tuple[str, ...]] = {
    "log.retention.ms": ("9000000000000", "soon", "-2"),
    "log.cleanup.policy": ("compact", "delete", "archive"),
    "log.segment.bytes": ("1048577", "1"),
    "message.max.bytes": ("1000012", "-1"),
    "compression.type": ("producer", "brotli"),
    "log.cleaner.threads": ("1", "0"),
    "num.partitions": ("2",),
    "node.id": ("7",),
    "no.such": ("1",),
}
GROUP_CONFIGS: Mapping[str, tuple[str, ...]] = {
    "consumer.session.timeout.ms": ("50000", "1", "x"),
    "consumer.heartbeat.interval.ms": ("6000", "99999"),
    "share.auto.offset.reset": ("earliest", "x", "by_duration:PT1H"),
    "no.such": ("1",),
}


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, as the broker's last answer told of it."""

    group_id: str
    member_id: str
    generation_id: int


@dataclass
class World:
    """Names that mean something; the play adds what answers tell."""

    seed: int
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)
    session_ids: list[int] = field(default_factory=list)
    log_dir: str = "/"
    lonely: int = 0  # how many groups of one request there have been

    @property
    def client_instances(self) -> list[bytes]:
        """Ids of clients that push their metrics."""
        return [Random(f"{self.seed} {number}").randbytes(16) for number in range(3)]

    @property
    def topics(self) -> list[str]:
        """The topics that were there at first."""
        return [f"{name}-{self.seed}" for name in TOPICS]

    @property
    def spare_topics(self) -> list[str]:
        """Names of topics that come and go."""
        return [f"{name}-{self.seed}" for name in ("spare", "new-1", "new-2", "new-3")]

    @property
    def groups(self) -> list[str]:
        """The groups."""
        return [f"group-{number}-{self.seed}" for number in range(3)]

    def creation(self) -> list[CreatableTopic]:
        """Return the topics as a request creates them."""
        return [
            CreatableTopic(
                name=f"{name}-{self.seed}",
                num_partitions=PARTITIONS,
                replication_factor=1,
                assignments=[],
                configs=[
                    CreatableTopicConfig(name=key, value=value)
                    for key, value in {"retention.ms": "-1", **configs}.items()
                ],
            )
            for name, configs in TOPICS.items()
        ]


def batch(*values: bytes, key: bytes | None = b"k", codec: Codec = Codec.NONE) -> bytes:
    """Encode a batch of records that are all of the same, old time."""
    made = [Record(at, 1_000 + at, key, value) for at, value in enumerate(values)]
    return encode_batch(made, codec=codec)


def sequenced(producer_id: int, epoch: int, sequence: int) -> bytes:
    """Encode a batch of an idempotent producer."""
    return RawBatch(
        (RawRecord(), RawRecord()),
        base_timestamp=1_000,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    ).encode()


_GOOD = batch(b"a", b"b")
UNKNOWN_CODEC = RawBatch(codec=5, packed=b"x").encode()
ZSTD_SINCE = 7  # versions of Produce
GOOD_BATCHES: tuple[bytes, ...] = (
    _GOOD,
    batch(b"c"),
    batch(b"d" * 100, b"e", codec=Codec.GZIP),
    *(sequenced(9_000, 0, 2 * number) for number in range(3)),
)
# Bytes that are no batch, or one of a magic to come, are not among them: Kafka answers
# CORRUPT_MESSAGE for every partition of such a request and appends nothing, ours for the one
# partition. Nor are batches of a producer without an epoch, which Kafka appends.
ODD_BATCHES: tuple[bytes, ...] = (
    b"",
    _GOOD[:-1] + bytes([_GOOD[-1] ^ 1]),
    _GOOD[:-1],
    _GOOD + _GOOD,
    batch(b"a", key=None),
    batch(bytes(2_000)),
    batch(b"z" * 50, codec=Codec.ZSTD),
    RawBatch(magic=1).encode(),
    RawBatch(flags=0x20).encode(),
    RawBatch(base_timestamp=2**45).encode(),
    RawBatch(base_offset=7).encode(),
    # Each field of the header by itself, with a CRC that is right unless it is the field.
    RawBatch(length=60).encode(),
    RawBatch(leader_epoch=5).encode(),
    RawBatch(crc=1).encode(),
    RawBatch(flags=0x08).encode(),
    RawBatch(flags=0x40).encode(),
    UNKNOWN_CODEC,
    RawBatch(last_offset_delta=5).encode(),
    RawBatch(max_timestamp=5).encode(),
    RawBatch(producer_epoch=3).encode(),
    RawBatch(base_sequence=3).encode(),
    *(RawBatch(count=count).encode() for count in (-1, 0, 5)),
    sequenced(9_000, 0, 99),
    sequenced(9_000, 1, 0),
    sequenced(9_001, 0, 5),
)
