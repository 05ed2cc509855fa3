"""Questions about the cleaning of shared topics, each with the answer that is wanted."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from collections.abc import Iterable, Mapping

from confluent_kafka import Producer

from bench.clients import clean_now, create_topic, send
from bench.processes import OdradekProcess, wait_for
from bench.shared.stage import Stage
from bench.watch import MemoryWatch

LOCAL, OBJECT = "local", "object"
# No cleaner begins by itself.
_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1",
    "segment.bytes": str(64 << 20),
}
_SIZE_BYTES, _KEYS = 1_000, 200_000
_MB_A_SECOND = 100  # written, for each second that a measurement may take
# The WAL has up to 64 MiB of the logs before these are stored.
_SETTLED_BYTES = 80e6
_UNIQUE, _UNIQUE_BYTES = 400_000, 480
_MANY_KEYS = 10_000_000
_LAG_S = 60.0

Record = tuple[bytes, bytes]


def ask_speed(stage: Stage, seconds: float, rounds: int) -> None:
    """Clean shared topics in the cache, and local ones with the same records."""
    ratios = []
    for at in range(rounds):
        topics = {storage: f"{storage}-{at}" for storage in (LOCAL, OBJECT)}
        rates = _rates(stage, topics, seconds)
        print(f"  local {rates[LOCAL]:.0f} MB/s, shared {rates[OBJECT]:.0f} MB/s", flush=True)
        ratios.append(rates[OBJECT] / rates[LOCAL])
    print(f"  ratio {', '.join(f'{one:.2f}' for one in sorted(ratios))}")


def ask_cold(stage: Stage, seconds: float, rounds: int) -> None:
    """Clean shared topics that only the bucket has."""
    for at in range(rounds):
        rates = _rates(stage, {OBJECT: f"{OBJECT}-{at}"}, seconds, is_cold=True)
        print(f"  shared {rates[OBJECT]:.0f} MB/s", flush=True)


def _rates(
    stage: Stage, topics: Mapping[str, str], seconds: float, *, is_cold: bool = False
) -> dict[str, float]:
    """Fill topics with the same records; return the MB/s at which each is cleaned."""
    (broker,) = stage.brokers
    for storage, topic in topics.items():
        create_topic(broker, topic, 1, {**_CONFIG, "odradek.storage": storage})
    rng = random.Random(1)
    values = [rng.randbytes(_SIZE_BYTES) for _ in range(1_000)]
    count = int(seconds * _MB_A_SECOND * 1e6 / _SIZE_BYTES)
    records = (
        (b"key-%09d" % rng.randrange(_KEYS), values[number % 1_000]) for number in range(count)
    )
    _fill(broker, topics.values(), records)
    stage.settle(_SETTLED_BYTES)
    if is_cold:
        _restart(broker)
    found = {}
    for storage, topic in topics.items():
        begun_s = time.monotonic()
        start_bytes = _clean(broker, topic)["start_bytes"]
        found[storage] = start_bytes / 1e6 / (time.monotonic() - begun_s)
    return found


def ask_unique(stage: Stage, seconds: float, rounds: int) -> None:
    """Clean 400,000 keys, each there once, with a map for a tenth of them."""
    config = {**_CONFIG, "segment.bytes": str(16 << 20), "odradek.storage": OBJECT}
    (broker,) = stage.brokers
    create_topic(broker, "unique", 1, config)
    value = bytes(_UNIQUE_BYTES)
    _fill(broker, ["unique"], ((b"key-%09d" % at, value) for at in range(_UNIQUE)))
    stage.settle(_SETTLED_BYTES)
    puts = stage.puts()
    result = _clean(broker, "unique")
    print(
        f"  one run to offset {result['end_offset']:,}, {result['written_bytes']} bytes written,"
        f" {result['segments_kept']} of {result['segments_read']} segments kept,"
        f" {(stage.puts() - puts).total()} PUTs meanwhile"
    )


def ask_many(stage: Stage, seconds: float, rounds: int) -> None:
    """Clean ten million keys, each there twice, in one run."""
    (broker,) = stage.brokers
    create_topic(broker, "many", 1, {**_CONFIG, "odradek.storage": OBJECT})
    numbers = list(range(_MANY_KEYS)) * 2
    random.Random(1).shuffle(numbers)
    _fill(broker, ["many"], ((b"key-%09d" % at, b"%020d" % at) for at in numbers))
    stage.settle(_SETTLED_BYTES)
    with MemoryWatch(broker) as idle:
        time.sleep(1)
    begun_s = time.monotonic()
    with MemoryWatch(broker) as watch:
        result = _clean(broker, "many")
    print(
        f"  one run to offset {result['end_offset']:,} in {time.monotonic() - begun_s:.0f} s:"
        f" {result['end_records']:,} of {result['start_records']:,} records stay;"
        f" map of {result['map_bytes'] / (1 << 20):.0f} MiB,"
        f" {result['spilled_bytes'] / 1e6:.0f} MB spilled,"
        f" memory {idle.most_bytes / 1e6:.0f} MB before, {watch.most_bytes / 1e6:.0f} MB at most"
    )


def ask_lag(stage: Stage, seconds: float, rounds: int) -> None:
    """Write a topic, be silent, and wait for its cleaning at max.compaction.lag.ms."""
    config = {**_CONFIG, "max.compaction.lag.ms": f"{_LAG_S * 1000:.0f}"}
    (broker,) = stage.brokers
    create_topic(broker, "lagging", 1, {**config, "odradek.storage": OBJECT})
    _fill(broker, ["lagging"], ((b"key-%d" % (at % 10), b"%d" % at) for at in range(1_000)))
    written_ms = time.time_ns() // 1_000_000

    def runs() -> list[dict[str, int]]:
        path = "/api/cleaner/history?topic=lagging&partition=0"
        with urllib.request.urlopen(broker.http + path, timeout=30) as found:
            answer: list[dict[str, int]] = json.load(found)["runs"]
            return answer

    wait_for(lambda: bool(runs()), "the topic is cleaned")
    print(f"  cleaned {(runs()[0]['at_ms'] - written_ms) / 1000 - _LAG_S:.1f} s after the lag")


# --- parts ------------------------------------------------------------------------------------


def _fill(broker: OdradekProcess, topics: Iterable[str], records: Iterable[Record]) -> None:
    """Write the same records to topics."""
    topics = list(topics)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "log_level": 0}
    )
    for key, value in records:
        for topic in topics:
            send(producer, topic, value, key)
    producer.flush(600)


def _restart(broker: OdradekProcess) -> None:
    """Start a broker again, which has nothing in its cache then."""
    file = broker.data / "odradek-admin-token"
    former = file.read_text()
    broker.stop()
    broker.start()
    wait_for(lambda: file.read_text() not in ("", former), "the broker has another token")


def _clean(broker: OdradekProcess, topic: str) -> dict[str, int]:
    """Have a broker clean a topic; return the result for its only partition."""
    (outcome,) = clean_now(broker, topic)
    assert outcome["outcome"] == "CLEANED", outcome
    result: dict[str, int] = outcome["result"]
    return result
