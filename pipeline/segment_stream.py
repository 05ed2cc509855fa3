"""A stream of the records of shared topics, which asks no broker for them.

Its offsets are those of Spark's Kafka source: {"orders": {"0": 23}} is the first offset of
partition 0 that is still to be read. A batch has the offsets from its start to before its end, and
has the same records when Spark runs it again, unless the cleaner has removed some: a sink that
merges by batch or by key has each record once.

With isolation=read_committed a batch ends at the last stable offset, as consumers do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_finding import tasks_of
from odradek.pipeline.segment_selection import LATEST, SegmentOptions, Span
from odradek.pipeline.segment_source import read_task

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.pipeline.shared_segments import SharedLog
    from odradek.pipeline.shared_transactions import OpenTransactions

Offsets: TypeAlias = dict[str, dict[str, int]]


class SegmentsStreamReader(DataSourceStreamReader):
    """Plans the batches of a stream; in tasks, read() reads a part of one."""

    def __init__(self, options: SegmentOptions, nullable: dict[str, bool]) -> None:
        """Raises PipelineError for files: they have no order in which they appear."""
        if not options.shared:
            raise PipelineError("a stream reads shared topics: give option catalog, not path")
        self._options, self._nullable = options, nullable
        self._open: dict[tuple[str, int], OpenTransactions] = {}

    def initialOffset(self) -> Offsets:
        """Return the offsets at which the stream begins."""
        if self._options.starting_offsets == LATEST:
            return self.latestOffset()
        return _offsets((log, log.snapshot.log_start_offset) for log in self._logs())

    def latestOffset(self) -> Offsets:
        """Return the offsets behind the last records that may be read."""
        return _offsets((log, self._end(log)) for log in self._logs())

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the tasks that read from some offsets to before others.

        Raises PipelineError if records in between were deleted and that must not be.
        """
        segments = []
        logs = {(one.snapshot.topic, one.snapshot.number): one for one in self._logs()}
        for topic, numbers in end.items():
            for number, last in numbers.items():
                first = start.get(topic, {}).get(number, 0)
                log = logs.get((topic, int(number)))
                if first < last:
                    self._check_loss(topic, number, first, last, log)
                    span = Span(first, last)
                    segments += [
                        replace(one, read=one.read & span)
                        for one in (log.segments if log else ())
                        if one.read.start < last and first < one.read.end
                    ]
        return [InputPartition(task) for task in tasks_of(segments)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        options = self._options
        return read_task(partition, options.selection, options.on_damage, self._nullable)

    def __getstate__(self) -> dict[str, object]:
        """Leave the planning behind: tasks do not need it."""
        return self.__dict__ | {"_open": {}}

    def _logs(self) -> list[SharedLog]:
        from odradek.pipeline.shared_segments import find_shared_logs

        return find_shared_logs(self._options, self._options.selection)

    def _end(self, log: SharedLog) -> int:
        if not self._options.selection.committed_only:
            return log.snapshot.high_watermark
        from odradek.pipeline.shared_transactions import OpenTransactions

        key = log.snapshot.topic, log.snapshot.number
        if key not in self._open:
            self._open[key] = OpenTransactions(log)
        return self._open[key].stable_offset(log)

    def _check_loss(
        self, topic: str, number: str, first: int, last: int, log: SharedLog | None
    ) -> None:
        if not self._options.fails_on_data_loss:
            return
        where = f"offsets {first} to {last - 1} of {topic}-{number}"
        hint = "set option failOnDataLoss to false to go on without them"
        if log is None or last > log.snapshot.high_watermark:
            raise PipelineError(
                f"{where} are gone: the topic was deleted, or created again; {hint}"
            )
        # A partition that the stream has not seen before begins at 0.
        if 0 < first < log.snapshot.log_start_offset:
            raise PipelineError(
                f"{where} were deleted up to {log.snapshot.log_start_offset} before they were "
                f"read; {hint}"
            )


def _offsets(found: Iterator[tuple[SharedLog, int]]) -> Offsets:
    offsets: Offsets = {}
    for log, offset in found:
        offsets.setdefault(log.snapshot.topic, {})[str(log.snapshot.number)] = offset
    return offsets
