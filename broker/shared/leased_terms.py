"""The messages between the leader of a partition and the job that cleans it, as JSON.

The terms have all by which the leader's own cleaner would decide: the range, the time, the
settings, the active producers. So a job on another machine, with another clock, decides alike.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.ids import Partition
from odradek.cleaner.passes.stats import Counters
from odradek.cleaner.rules.job import ActiveProducer, CleaningJob
from odradek.config.effective import resolve_topic
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.storage.transactions import AbortedTransaction

_SETTINGS = {
    "delete.retention.ms": "delete_retention_ms",
    "index.interval.bytes": "index_interval_bytes",
    "max.decompressed.message.bytes": "max_decompressed_message_bytes",
    "segment.index.bytes": "segment_index_bytes",
}


@dataclass(frozen=True, slots=True)
class Terms:
    """The part of a log that a job may clean, and how.

    `aborted` are the transactions with records in that part whose markers are behind it. Objects
    of the job have keys that begin with `prefix`.
    """

    name: str
    topic: str
    number: int
    prefix: str
    log_start_offset: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    segment_bytes: int
    settings: Mapping[str, str]
    producers: Mapping[int, ActiveProducer]
    aborted: tuple[AbortedTransaction, ...]

    @classmethod
    def of(
        cls,
        job: CleaningJob,
        log_start_offset: int,
        aborted: tuple[AbortedTransaction, ...],
        prefix: str,
    ) -> Terms:
        """Return the terms of a cleaning that a leader would begin now."""
        values = {name: getattr(job.config, field) for name, field in _SETTINGS.items()}
        return cls(
            job.name,
            job.topic,
            job.partition,
            prefix,
            log_start_offset,
            job.dirty.first_dirty_offset,
            job.dirty.first_uncleanable_offset,
            job.now_ms,
            job.segment_bytes,
            {name: str(value) for name, value in values.items()},
            job.producers,
            aborted,
        )

    @property
    def config(self) -> TopicConfig:
        """The settings of the topic that matter."""
        return resolve_topic(self.settings, []).config

    def encode(self) -> bytes:
        """Return them as JSON."""
        values = asdict(self)
        values["producers"] = [
            [key, one.last_data_offset, one.epoch] for key, one in self.producers.items()
        ]
        return json.dumps(values).encode()

    @classmethod
    def decode(cls, data: bytes) -> Terms:
        """Return the terms that a leader has encoded."""
        values = json.loads(data)
        values["producers"] = {
            key: ActiveProducer(last, epoch) for key, last, epoch in values["producers"]
        }
        values["aborted"] = tuple(AbortedTransaction(**one) for one in values["aborted"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Consecutive rows, each named by base offset and key, and the row that replaces them."""

    old: tuple[tuple[int, str], ...]
    new: SegmentRow


@dataclass(frozen=True, slots=True)
class Proposal:
    """The result of a job for a partition."""

    replacements: tuple[Replacement, ...]
    counters: Counters
    next_horizon_ms: int | None
    index_ms: int
    total_ms: int

    def encode(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(
            {
                "replacements": [
                    {"old": one.old, "new": _row_as_json(one.new)} for one in self.replacements
                ],
                "counters": asdict(self.counters),
                "next_horizon_ms": self.next_horizon_ms,
                "index_ms": self.index_ms,
                "total_ms": self.total_ms,
            }
        ).encode()

    @classmethod
    def decode(cls, data: bytes, partition: Partition) -> Proposal:
        """Return the proposal that a job has encoded for a partition."""
        values = json.loads(data)
        replacements = tuple(
            Replacement(
                tuple((base, key) for base, key in one["old"]), _row_of(one["new"], partition)
            )
            for one in values.pop("replacements")
        )
        counters = Counters(**values.pop("counters"))
        return cls(replacements, counters, **values)


def _row_as_json(row: SegmentRow) -> dict[str, Any]:
    names = [field.name for field in fields(row) if field.name not in ("partition", "files")]
    values = {name: getattr(row, name) for name in names}
    return values | {"files": base64.b64encode(row.files).decode()}


def _row_of(values: dict[str, Any], partition: Partition) -> SegmentRow:
    files = base64.b64decode(values.pop("files"))
    return SegmentRow(partition=partition, files=files, **values)
