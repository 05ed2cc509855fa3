"""Spark's reading of a broker's topics, in a form in which two brokers compare.

    reader = Reader(spark, broker.bootstrap, folder)
    reader.batch(subscribe="prices", minPartitions=7)
    stream = reader.stream(subscribe="prices", maxOffsetsPerTrigger=10)
    stream.run_to_end()

It has neither addresses nor ids in it, which differ from run to run.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# A read that gets nothing from the broker fails after this long instead of Spark's two minutes.
POLL_TIMEOUT_MS = 20_000
PATIENCE_S = 90

_DEFAULTS = {
    "includeHeaders": "true",
    "kafkaConsumer.pollTimeoutMs": str(POLL_TIMEOUT_MS),
    # Spark tries three times to find offsets; its default is to rest a second in between.
    "fetchOffset.retryIntervalMs": "10",
    "kafka.request.timeout.ms": "20000",
    "kafka.default.api.timeout.ms": "30000",
}
_DIFFER = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(--?\d+)?"), "ID"),
    (re.compile(r"127\.0\.0\.1:\d+"), "BROKER"),
)

Row = tuple[Any, ...]
"""A row: Spark's partition first, then the record."""

Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Read:
    """What a batch query returned, in so many partitions of Spark's."""

    rows: Sequence[Row]
    partitions: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a query failed: the classes from the outermost to the cause, and what that says."""

    classes: Sequence[str]
    message: str


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What a stream has read in one go, and where that began and ended."""

    number: int
    start: Offsets | None
    end: Offsets
    latest: Offsets | None
    rows: Sequence[Row]


Played = list[MicroBatch] | Failed
"""What a stream has read in all its runs, or why it ended."""


@dataclass
class Reader:
    """Spark's source on one broker; folder holds the checkpoints."""

    spark: SparkSession
    bootstrap: str
    folder: Path

    def batch(self, **options: object) -> Read | Failed:
        """Read once: options as Spark names them, with __ for a dot."""
        named = self._options(options)
        try:
            frame = self.spark.read.format("kafka").options(**named).load()
            return Read(_rows_of(frame), frame.rdd.getNumPartitions())
        except (PySparkException, Py4JJavaError) as error:
            return _failed(error)

    def stream(self, **options: object) -> Stream:
        """Prepare a stream with a checkpoint of its own; options as for a batch."""
        checkpoint = self.folder / f"checkpoint-{uuid.uuid4()}"
        return Stream(self.spark, self._options(options), checkpoint)

    def _options(self, options: dict[str, object]) -> dict[str, str]:
        named = {"kafka.bootstrap.servers": self.bootstrap, **_DEFAULTS}
        for name, value in options.items():
            text = value if isinstance(value, str) else json.dumps(value)
            named[name.replace("__", ".")] = text
        return named


@dataclass
class Stream:
    """A stream that may be started again; what all its runs have read is kept."""

    spark: SparkSession
    options: dict[str, str]
    checkpoint: Path
    batches: list[MicroBatch] = field(default_factory=list)
    query: StreamingQuery | None = None
    _rows: dict[int, Sequence[Row]] = field(default_factory=dict)
    _failed: Failed | None = None  # while records were collected

    def start(self, **trigger: Any) -> None:
        """Start it where its checkpoint says; as fast as it can where no trigger is given."""

        def collect(frame: DataFrame, number: int) -> None:
            try:
                self._rows[number] = _rows_of(frame)
            except (PySparkException, Py4JJavaError) as error:
                # On its way through Python to the query's own exception the cause gets lost.
                self._failed = _failed(error)
                raise

        frame = self.spark.readStream.format("kafka").options(**self.options).load()
        writer = frame.writeStream.foreachBatch(collect)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if trigger:
            writer = writer.trigger(**trigger)
        self.query = writer.start()

    def catch_up(self) -> None:
        """Wait until a running stream has read all there is, or has failed."""
        assert self.query is not None
        with contextlib.suppress(StreamingQueryException):  # stop() tells it
            self.query.processAllAvailable()

    def count_rows(self) -> int:
        """Return how many records its batches have had until now."""
        return sum(map(len, list(self._rows.values())))

    def stop(self) -> Played:
        """Stop it, and return what was read in all; or why it had failed."""
        assert self.query is not None
        self.query.stop()
        return self._end(self.query)

    def run_to_end(self) -> Played:
        """Read what there is when it starts, and return what was read in all; or why not."""
        self.start(availableNow=True)
        return self.wait()

    def wait(self) -> Played:
        """Wait until it ends by itself."""
        assert self.query is not None
        try:
            with contextlib.suppress(StreamingQueryException):
                assert self.query.awaitTermination(PATIENCE_S), self.query.status
        finally:
            self.query.stop()
        return self._end(self.query)

    def _end(self, query: StreamingQuery) -> Played:
        known = {one.number for one in self.batches}
        for entry in query.recentProgress:
            progress = json.loads(entry.json)
            number, source = progress["batchId"], progress["sources"][0]
            start, end, latest = (source[f"{which}Offset"] for which in ("start", "end", "latest"))
            # What tells only that there was nothing to do ends where it began.
            if end is None or start == end or number in known:
                continue
            self.batches.append(MicroBatch(number, start, end, latest, self._rows.get(number, ())))
        exception = query._jsq.exception()
        if exception.isDefined():
            return self._failed or _failure(exception.get())
        return list(self.batches)


def batches_of(played: Played) -> list[MicroBatch]:
    """Return what a stream has read that did not fail."""
    assert isinstance(played, list), played
    return played


def _rows_of(frame: DataFrame) -> list[Row]:
    """Collect records in order, each with the partition of Spark's that read it."""
    columns = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampType")
    with_headers = (*columns, "headers") if "headers" in frame.columns else columns
    rows = frame.select(f.spark_partition_id().alias("task"), *with_headers).collect()
    return sorted((tuple(map(_plain, row)) for row in rows), key=lambda row: row[:4])


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [(header["key"], _plain(header["value"])) for header in value]
    return value


def _failed(error: PySparkException | Py4JJavaError) -> Failed:
    origin = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if origin is None:
        return Failed([type(error).__name__], _comparable(str(error)))
    return _failure(origin)


def _failure(thrown: Any) -> Failed:
    classes: list[str] = []
    message = ""
    while thrown is not None and len(classes) < 20:
        classes.append(thrown.getClass().getSimpleName())
        message = thrown.getMessage() or ""
        thrown = thrown.getCause()
    return Failed(classes, _comparable(message))


def _comparable(message: str) -> str:
    for pattern, replacement in _DIFFER:
        message = pattern.sub(replacement, message)
    return message
