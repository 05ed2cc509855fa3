"""Pictures of compaction, drawn from a broker's real cleanings: docs/images/*.svg.

    python -m bench.pictures

Takes about a minute. It writes records, lets the broker clean them, and reads the segment files
before and after; nothing in a picture is invented.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from bench.clients import clean_now
from bench.pictures_svg import Curve, Points, Stored, Strip, draw_curves, draw_points, draw_strips
from bench.processes import ROOT, OdradekProcess
from odradek.cli.dump_rows import Row, Wanted, reader_of
from odradek.storage.real_files import RealFileSystem

IMAGES = ROOT / "docs" / "images"
PATIENCE_S = 60.0
# The keys of a shop that changes prices; None deletes a key.
PRICES = (
    ("p3", "10"), ("p5", "7"), ("p3", "11"), ("p6", "25"), ("p6", "12"), ("p5", "14"),
    ("p9", "3"), ("p5", "17"), ("p3", "12"), ("p9", "4"), ("p3", "13"), ("p6", "11"),
)  # fmt: skip
DELETIONS = (
    ("p3", "10"), ("p5", "7"), ("p6", "25"), ("p3", "11"), ("p5", None), ("p6", "12"),
    ("p3", "12"), ("p9", "3"), ("p6", "13"), ("p3", "13"),
)  # fmt: skip
_LAZY = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
_SMALL = _LAZY | {"internal.segment.bytes": "290"}
TOMBSTONES_KEPT_MS = 4000
RATIOS = (0.1, 0.25, 0.5, 0.75)
KEYS, VALUE = 4000, "x" * 100
HOT_KEYS = KEYS // 10
CYCLES = 5
_CHUNK = 100


@dataclass(frozen=True, slots=True)
class Shop:
    """A broker, and requests to it."""

    broker: OdradekProcess
    admin: AdminClient

    def create(self, topic: str, settings: Mapping[str, str]) -> None:
        """Create a topic with one partition."""
        made = NewTopic(topic, 1, 1, config=dict(settings))
        self.admin.create_topics([made])[topic].result(20)

    def set(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(20)

    def produce(self, topic: str, records: Sequence[tuple[str, str | None]], batch: int) -> None:
        """Write records in batches of a number of records, and wait for the acknowledgements."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        refused: list[KafkaError] = []

        def note(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        for start in range(0, len(records), batch):
            for key, value in records[start : start + batch]:
                producer.produce(topic, value, key, on_delivery=note)
            if producer.flush(20) or refused:
                raise RuntimeError(f"{topic}: records were not delivered: {refused[:1]}")

    def ask(self, path: str, **query: str | int) -> Any:
        """Return the answer to a path of the broker's API."""
        url = f"{self.broker.http}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)

    def clean(self, topic: str) -> None:
        """Clean a topic now, at any dirty ratio."""
        clean_now(self.broker, topic, 60)

    def runs(self, topic: str) -> list[dict[str, Any]]:
        """Return the results of the cleanings of a topic, the oldest first."""
        runs = self.ask("/api/cleaner/history", topic=topic, partition=0)["runs"]
        return [run["result"] | {"at_ms": run["at_ms"]} for run in runs if "result" in run]

    def ratio(self, topic: str) -> float:
        """Return the dirty ratio of a topic now."""
        (row,) = self.ask("/api/topic", topic=topic)["partition_rows"]
        return float(row["dirty_ratio"])

    def segments(self, topic: str) -> list[list[Stored]]:
        """Return the records of each segment file on the disk."""
        found = []
        for path in sorted((self.broker.data / f"{topic}-0").glob("*.log")):
            read = reader_of(path)
            assert read is not None
            rows = list(read(RealFileSystem(), path, Wanted(records=True)))
            assert all(isinstance(row, Row) for row in rows), f"{path} is damaged"
            found.append([_stored(r) for r in rows if isinstance(r, Row) and r.kind == "record"])
        return found


def _stored(row: Row) -> Stored:
    offset, key, value = (row.fields[name] for name in ("offset", "key", "value"))
    assert isinstance(offset, int) and isinstance(key, bytes)
    assert value is None or isinstance(value, bytes)
    return Stored(offset, key.decode(), None if value is None else value.decode())


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; raises RuntimeError at a deadline."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {PATIENCE_S:.0f} s")
        time.sleep(0.02)


def before_and_after(shop: Shop) -> list[Strip]:
    """Clean a small log; return its records before and after."""
    shop.create("prices", _SMALL)
    shop.produce("prices", PRICES, 1)
    before = shop.segments("prices")
    shop.set("prices", "min.cleanable.dirty.ratio", "0.01")
    _wait_for_runs(shop, "prices", 1)
    (run,) = shop.runs("prices")
    return [
        Strip("before", before),
        Strip("after one run", shop.segments("prices"), clean_up_to=run["end_offset"]),
    ]


def life_of_a_tombstone(shop: Shop) -> list[Strip]:
    """Clean a log with a tombstone, wait until that may go; return the records at each step."""
    kept_ms = str(TOMBSTONES_KEPT_MS)
    kept = {"delete.retention.ms": kept_ms, "segment.ms": kept_ms}
    shop.create("tombstones", _SMALL | kept)
    shop.produce("tombstones", DELETIONS, 1)
    strips = [Strip("p5 is deleted", shop.segments("tombstones"))]
    shop.set("tombstones", "min.cleanable.dirty.ratio", "0.01")
    for count in (1, 2):
        _wait_for_runs(shop, "tombstones", count)
        if count == 1:
            shop.set("tombstones", "min.cleanable.dirty.ratio", "1.0")
        first, *later = shop.runs("tombstones")
        text = f"{(later[0]['at_ms'] - first['at_ms']) / 1000:.1f} s later" if later else "cleaned"
        found = shop.segments("tombstones")
        strips.append(Strip(text, found, clean_up_to=(later or [first])[-1]["end_offset"]))
    return strips


def saw_tooth(shop: Shop, ratio: float) -> Curve:
    """Write until a log was cleaned often enough; return its dirty ratios meanwhile."""
    topic = f"saw-{ratio}"
    shop.create(topic, _LAZY | {"internal.segment.bytes": "20000"})
    shop.produce(topic, [(f"k{number}", VALUE) for number in range(KEYS)], _CHUNK)
    shop.clean(topic)
    shop.set(topic, "min.cleanable.dirty.ratio", str(ratio))
    chance, written, points = random.Random(7), 0, [(0.0, shop.ratio(topic))]
    while written < 3.5 * KEYS:
        shop.produce(topic, list(_updates(chance, KEYS)), _CHUNK)
        written += _CHUNK
        dirty = shop.ratio(topic)
        points.append((written / KEYS, dirty))
        if dirty > ratio:
            wait_for(lambda: shop.ratio(topic) <= ratio, f"{topic} is cleaned")
            points.append((written / KEYS, shop.ratio(topic)))
    return Curve(f"min.cleanable.dirty.ratio={ratio}", ratio, points)


def amplification(shop: Shop, ratio: float, hot_keys: int) -> float:
    """Return the bytes that cleanings wrote for each dirty byte, at a ratio."""
    topic = f"written-{ratio}-{hot_keys}"
    shop.create(topic, _LAZY | {"internal.segment.bytes": "20000"})
    shop.produce(topic, [(f"k{number}", VALUE) for number in range(KEYS)], _CHUNK)
    shop.clean(topic)
    shop.set(topic, "min.cleanable.dirty.ratio", str(ratio))
    chance = random.Random(7)
    while len(shop.runs(topic)) <= CYCLES:
        shop.produce(topic, list(_updates(chance, hot_keys)), _CHUNK)
        if shop.ratio(topic) > ratio:
            wait_for(lambda: shop.ratio(topic) <= ratio, f"{topic} is cleaned")
    runs = shop.runs(topic)[1:]
    written_bytes, dirty_bytes = (
        sum(run[name] for run in runs) for name in ("written_bytes", "indexed_bytes")
    )
    return float(written_bytes / dirty_bytes)


def _wait_for_runs(shop: Shop, topic: str, count: int) -> None:
    wait_for(lambda: len(shop.runs(topic)) >= count, f"cleaning {count} of {topic}")


def _updates(chance: random.Random, keys: int) -> Iterator[tuple[str, str]]:
    for _ in range(_CHUNK):
        yield f"k{chance.randrange(keys)}", VALUE


def main() -> int:
    """Start a broker, let it clean, and draw the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="odradek-pictures-") as folder:
        broker = OdradekProcess(Path(folder), {"log.cleaner.backoff.ms": "50"})
        broker.start()
        shop = Shop(broker, AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}))
        try:
            wait_for(lambda: _answers(shop), "the broker answers HTTP")
            pictures = dict(draw(shop))
        finally:
            broker.stop()
    for name, picture in pictures.items():
        (IMAGES / f"{name}.svg").write_text(picture)
        print(f"drew docs/images/{name}.svg")
    return 0


def draw(shop: Shop) -> Iterator[tuple[str, str]]:
    """Yield each picture with its name."""
    yield "log-before-after", draw_strips(before_and_after(shop))
    yield "log-tombstone", draw_strips(life_of_a_tombstone(shop))
    yield "dirty-ratio", draw_curves([saw_tooth(shop, ratio) for ratio in (0.5, 0.2)])
    loads = {"updates of all keys": KEYS, "updates of a tenth of the keys": HOT_KEYS}
    yield (
        "write-amplification",
        draw_points(
            [
                Points(name, [(ratio, amplification(shop, ratio, keys)) for ratio in RATIOS])
                for name, keys in loads.items()
            ]
        ),
    )


def _answers(shop: Shop) -> bool:
    try:
        return bool(shop.ask("/api/broker"))
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
