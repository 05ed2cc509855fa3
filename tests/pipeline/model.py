"""The table as a plain Python dict: what the job must come to, in ten lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Row

Headers = tuple[tuple[str, bytes], ...]
Key = tuple[str, int, bytes]


class Record(NamedTuple):
    """One record of a topic, as a reader of it sees it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def latest(records: Iterable[Record]) -> dict[Key, Record]:
    """Apply records in order of offset to an empty dict."""
    table: dict[Key, Record] = {}
    for record in sorted(records, key=lambda one: one.offset):
        if record.key is None:
            continue
        key = (record.topic, record.partition, record.key)
        if record.value is None:
            table.pop(key, None)
        else:
            table[key] = record
    return table


def as_record(row: Row) -> Record:
    """Turn a row of Spark's into a record of the model."""
    headers = tuple((h["key"], bytes(h["value"])) for h in row["headers"] or ())
    return Record(
        row["topic"],
        row["partition"],
        row["offset"],
        None if row["key"] is None else bytes(row["key"]),
        None if row["value"] is None else bytes(row["value"]),
        headers,
    )


def as_table(rows: Iterable[Row]) -> dict[Key, Record]:
    """Turn a table's rows into the model's dict; two rows of one key are a failure."""
    table: dict[Key, Record] = {}
    for record in map(as_record, rows):
        assert record.key is not None
        key = (record.topic, record.partition, record.key)
        assert key not in table, f"two rows for {key}"
        table[key] = record
    return table
