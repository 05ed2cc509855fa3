"""How fast do producers write? One Java producer of 100 B records, varied in one way at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.clients import Load, create_topic, librdkafka_produce, produce_warm
from bench.pairs import Broker, Figure, Question, Values

_RATE = "records/s"


@dataclass(frozen=True, slots=True)
class _Case:
    load: Load
    partitions: int = 1
    at_least: float | None = None


# The number of records takes a second or two in each case.
_CASES: Mapping[str, _Case] = {
    "100 B": _Case(Load(2_000_000), at_least=1.5),
    "1 kB": _Case(Load(400_000, 1_000), at_least=1.5),
    "10 kB": _Case(Load(50_000, 10_000)),
    "100 B, acks=all": _Case(Load(1_000_000, 100, {"acks": "all"}), at_least=1.0),
    "1 kB, acks=all": _Case(Load(300_000, 1_000, {"acks": "all"}), at_least=1.0),
    "32 partitions": _Case(Load(2_000_000), partitions=32),
    "lz4": _Case(Load(2_000_000, 100, {"compression.type": "lz4"})),
    "zstd": _Case(Load(2_000_000, 100, {"compression.type": "zstd"})),
    "linger.ms=0": _Case(Load(1_000_000, 100, {"linger.ms": "0"})),
    # With acks=all producers are idempotent by default.
    "acks=all, not idempotent": _Case(
        Load(1_000_000, 100, {"acks": "all", "enable.idempotence": "false"})
    ),
    "transactions of 100 ms": _Case(
        Load(
            1_000_000,
            100,
            {"acks": "all"},
            ["--transactional-id", "bench", "--transaction-duration-ms", "100"],
        )
    ),
}
_MANY: Mapping[str, int] = {"10 producers (librdkafka)": 10, "100 producers (librdkafka)": 100}
_MANY_RECORDS = 1_000_000


def _ask(broker: Broker, scale: float) -> Values:
    values = {}
    for number, (title, case) in enumerate(_CASES.items()):
        topic = f"produce-{number}"
        create_topic(broker, topic, case.partitions)
        values[title] = produce_warm(broker, topic, case.load.scaled(scale))
    for title, producers in _MANY.items():
        topic = f"produce-by-{producers}"
        create_topic(broker, topic, 10)
        records = max(int(_MANY_RECORDS * scale), producers)
        values[title] = librdkafka_produce(broker, topic, records, producers)
    return values


PRODUCE = Question(
    "produce",
    "ProducerPerformance, linger.ms=5, batch.size=65536, acks=1, one partition, except where "
    "stated",
    [Figure(title, _RATE, at_least=case.at_least) for title, case in _CASES.items()]
    + [Figure(title, _RATE) for title in _MANY],
    _ask,
    note="With acks=all Odradek answers once the records are on the disk, Kafka once they are in "
    "memory. The cases follow each other on one broker, so that Kafka's compiler has seen more "
    "of them in the later ones.",
)
