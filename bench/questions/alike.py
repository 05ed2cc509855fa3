"""The same promise from both brokers, as Kafka gives another one with its defaults.

    on-disk      both answer acks=all once the records are on the disk (flush.messages=1)
    in-memory    both answer acks=all once they are in memory (log.flush.acks.all=false)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.clients import Load, create_topic, produce_warm
from bench.pairs import Broker, Figure, Question, Values, quantile
from bench.questions.latency import round_trips
from bench.questions.many import ACKNOWLEDGED_BYTES, CLIENTS, acknowledged

_TRIPS = 5_000
_ALL = {"acks": "all"}
_LOADS = {"100 B": Load(1_000_000, 100, _ALL), "1 kB": Load(300_000, 1_000, _ALL)}


def _ask(config: Mapping[str, str], broker: Broker, scale: float) -> Values:
    values = {}
    for number, (title, load) in enumerate(_LOADS.items()):
        topic = f"written-{number}"
        create_topic(broker, topic, 1, config)
        values[f"one producer, {title}"] = produce_warm(broker, topic, load.scaled(scale))
    for title, answers_per_s in acknowledged(broker, scale, config).items():
        values[f"{CLIENTS} connections, {title}"] = answers_per_s
    create_topic(broker, "trips", 1, config)
    count = max(int(_TRIPS * scale), 100)
    trips_s = round_trips(broker, "trips", "all", 2 * count)
    values["round trip, p50"] = quantile(trips_s[-count:], 0.5) * 1e6
    return values


def _figures(at_least: float) -> list[Figure]:
    producers = [f"one producer, {title}" for title in _LOADS]
    connections = [f"{CLIENTS} connections, {title}" for title in ACKNOWLEDGED_BYTES]
    return [
        *(Figure(title, "records/s", at_least=at_least) for title in producers),
        *(Figure(title, "1/s", at_least=at_least) for title in connections),
        Figure("round trip, p50", "µs", more_is_better=False, at_least=at_least),
    ]


ON_DISK = Question(
    "on-disk",
    "acks=all from the disk on both sides: topics with flush.messages=1",
    _figures(3.0),
    partial(_ask, {"flush.messages": "1"}),
    note="Kafka syncs each batch before it appends the next one; Odradek syncs once for "
    "all that have come meanwhile. Three times Kafka's figures cannot be had from this disk: an "
    "`fdatasync` alone takes half of Kafka's round trip, a server that only appends and syncs "
    "answers 6,700 a second with 100 B and 3,900 with 20 kB (`python -m bench.bound`), and one "
    "producer that waits for no disk (`in-memory`) writes 2 to 2.6 times as much as Kafka here.",
)

IN_MEMORY = Question(
    "in-memory",
    "acks=all from memory on both sides: Odradek with log.flush.acks.all=false",
    _figures(1.0),
    partial(_ask, {}),
    {"log.flush.acks.all": "false"},
    note="Neither is safe from a crash of the machine: Kafka relies on replicas here. A server on "
    "the same event loop that only appends answers 10,300 to 27,700 a second with 20 kB "
    "(`python -m bench.bound`); Kafka has a loop for each core. In `one-core` both have one.",
)
