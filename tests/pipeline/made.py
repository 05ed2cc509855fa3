"""What jobs have made, read without Spark: topics by a plain client, tables file by file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as parquet

PATIENCE_S = 60.0
SCHEMA = (
    "id BIGINT, account_id BIGINT, status STRING, version BIGINT, subject STRING, "
    "description STRING"
)

Rows = dict[tuple[int, bytes], tuple[int, Any]]


class Seen(NamedTuple):
    """A record that a consumer has seen."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def consumed(bootstrap: str, topic: str, count: int) -> list[Seen]:
    """Read a topic from its start, so many records and no more."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        # kafka-python 3.0 may miss a topic at its start, and asks again after this
        metadata_max_age_ms=1_000,
    )
    seen: list[Seen] = []
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        while len(seen) < count:
            assert time.monotonic() < deadline_s, f"{len(seen)} of {count} records"
            for records in consumer.poll(timeout_ms=1000).values():
                seen += [Seen(one.partition, one.offset, one.key, one.value) for one in records]
        assert not consumer.poll(timeout_ms=200)
    finally:
        consumer.close()
    return seen


def parquet_rows(*files: Path) -> Rows:
    """Read the rows of a table, by partition and key: each one's offset and value."""
    found: Rows = {}
    for file in files:
        for row in parquet.read_table(file).to_pylist():
            key = (row["partition"], row["key"])
            assert key not in found, key
            found[key] = (row["offset"], row["value"])
    return found


def delta_rows(table: Path) -> Rows:
    """Read the rows of a table of Delta Lake's, whose log says which files it is."""
    files: set[str] = set()
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files.add(action["add"]["path"])
            elif "remove" in action:
                files.discard(action["remove"]["path"])
    return parquet_rows(*(table / name for name in sorted(files)))
