"""The records of one group that Kafka and our machine write, held against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bench.processes import KafkaProcess
from odradek.broker.groups.records import KeyValue, Record, decode_record
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import iterate_batches
from tests.support.waiting import last_answer

Plain = Callable[[Record], tuple[Any, ...]]
"""Returns a record as plain values, its kind first."""


@dataclass
class WrittenByBoth:
    """What both have written since the last look."""

    kafka: KafkaProcess
    group: str
    log: Sequence[KeyValue]  # of our machine, which grows
    plain: Plain
    position: int = 0
    seen: int = 0

    def check(self, what: object) -> None:
        """Fail unless both have written the same since the last look."""
        written, expected = self.ours(), list[Record]()

        def known() -> list[Record]:
            expected.extend(self.theirs())
            return expected

        last_answer(known, lambda expected: len(expected) >= len(written))
        assert self._in_runs(written) == self._in_runs(expected), what

    def ours(self) -> list[Record]:
        """Return the records that we have written since the last time."""
        new = self.log[self.seen :]
        self.seen = len(self.log)
        return [record for key, value in new if (record := decode_record(key, value))]

    def theirs(self) -> list[Record]:
        """Return the records of the group that Kafka has written since the last time."""
        path = self.kafka.data / "__consumer_offsets-0" / "00000000000000000000.log"
        if not path.exists():
            return []
        data = path.read_bytes()
        records = []
        for position, header in iterate_batches(data, self.position):
            self.position = position + 12 + header.length
            for record in decode_records(data, position):
                assert record.key is not None
                decoded = decode_record(record.key, record.value)
                if decoded is not None and decoded.group_id == self.group:
                    records.append(decoded)
        return records

    def _in_runs(self, records: Sequence[Record]) -> list[Any]:
        """Return records as plain values; those of a kind that follow one another are sorted."""
        plain = map(self.plain, records)
        return [
            (kind, sorted(group, key=repr))
            for kind, group in groupby(plain, key=lambda record: record[0])
        ]
