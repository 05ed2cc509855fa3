"""Clean leased logs by Spark: the shuffle finds the last offset of each key.

    task, for some parts     reads segments -> the latest record of each key in each part  (Python)
    Spark                    groups by the keys' hashes -> the latest record of each key in a log
    task, for some parts     rewrites segments without the others -> objects, replacements (Python)

A part is a few neighbouring segments of a log (broker/shared/leased.py). A record is named by the
number of its part, which grows with the offsets of a log, and by its ordinal there; so the latest
record of a key is the one with the largest name. Records are judged and written by the code of the
brokers' cleaner.

A part that cannot be read or written fails its log alone. A task that is repeated stores objects
of its own: the leader has those deleted that no replacement names.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import StorageLevel, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.broker.shared.leased import LeasedLog
from odradek.broker.shared.leased_parts import (
    Rewrite,
    draw_key,
    latest_in_part,
    plan_rewrites,
    put_together,
    rewrite,
)
from odradek.broker.shared.leased_terms import Proposal
from odradek.broker.shared.snapshot import SharedLogs, open_store
from odradek.cleaner.passes.hashing import HashKey
from odradek.cleaner.passes.parts import PartFacts
from odradek.dataclass import dataclass
from odradek.pipeline.python_workers import forget_archives
from odradek.storage.errors import StorageError
from odradek.storage.objects.store import ObjectStoreError

Ordinals = npt.NDArray[np.int64]

_KEYS = "hash long, more_hash long, place long"
_RESULTS = "part int, proposal binary, failure string"
_FAILURES = (StorageError, ObjectStoreError)
_ORDINAL_BITS = 32
# Each part has a row with this ordinal, so that it has a row at all; no record has it.
_NO_RECORD = (1 << _ORDINAL_BITS) - 1
# A task reads keys of about so many bytes of segments.
_TASK_BYTES = 128 << 20
# An attempt of a task stores fewer objects.
_OBJECTS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Wave:
    """Logs that are cleaned together; their parts are numbered, those of each log in order."""

    place: SharedLogs
    logs: tuple[LeasedLog, ...]
    parts: tuple[tuple[int, int], ...]  # the places of the log, and of the part in the log
    key: HashKey

    def size_of(self, number: int) -> int:
        """Return the bytes of a part."""
        log, part = self.parts[number]
        return self.logs[log].size_of(part)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A log with the proposal for it, or the reason why there is none."""

    log: LeasedLog
    proposal: Proposal | None
    failure: str = ""


def clean_logs(
    spark: SparkSession, place: SharedLogs, logs: Sequence[LeasedLog]
) -> list[Cleaned]:
    """Clean logs, as far as they can be read and written, but for the exchange of segments."""
    parts = tuple((at, part) for at, log in enumerate(logs) for part in range(len(log.parts)))
    wave = Wave(place, tuple(logs), parts, draw_key())
    sent = spark.sparkContext.broadcast(wave)
    begun_s = time.monotonic()
    latest, facts = _find_latest(spark, wave, sent)
    try:
        index_ms = round(1000 * (time.monotonic() - begun_s))
        failures = {parts[number][0]: one for number, one in facts.items() if isinstance(one, str)}
        rewrites = _plan(wave, facts, failures)
        results = latest.mapInArrow(
            partial(_rewrite, sent, spark.sparkContext.broadcast(rewrites)), _RESULTS
        )
        made: dict[int, list[tuple[int, Proposal]]] = defaultdict(list)
        for number, proposal, failure in results.collect():
            at = parts[number][0]
            if failure is not None:
                failures[at] = failure
            else:
                made[at].append((number, Proposal.decode(bytes(proposal), logs[at].partition)))
    finally:
        latest.unpersist()
    return [
        Cleaned(log, None, failures[at])
        if at in failures
        else Cleaned(log, put_together([one for _, one in sorted(made[at])], index_ms))
        for at, log in enumerate(logs)
    ]


def _plan(
    wave: Wave, facts: dict[int, PartFacts | str], failures: dict[int, str]
) -> dict[int, Rewrite]:
    """Return how parts are rewritten, but for those of logs that cannot be read."""
    store = open_store(wave.place.store)
    found: dict[int, Rewrite] = {}
    of_logs: dict[int, list[int]] = defaultdict(list)
    for number, (at, _) in enumerate(wave.parts):
        of_logs[at].append(number)
    for at, numbers in of_logs.items():
        known = [one for number in numbers if isinstance(one := facts[number], PartFacts)]
        if at in failures:
            continue
        try:
            found.update(zip(numbers, plan_rewrites(store, wave.logs[at], known), strict=True))
        except _FAILURES as error:
            failures[at] = str(error)
    return found


def _find_latest(
    spark: SparkSession, wave: Wave, sent: Broadcast[Wave]
) -> tuple[DataFrame, dict[int, PartFacts | str]]:
    """Return the parts and ordinals of the latest records, by part, kept on the disks.

    Returns also the facts of the parts, or the reasons why they cannot be read.
    """
    tasks = list(_tasks(wave))
    found: Accumulator[dict[int, PartFacts | str]] = spark.sparkContext.accumulator(
        {}, _Collected()
    )
    keys = spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(
        partial(_read_keys, sent, tasks, found), _KEYS
    )
    count = len(wave.parts)
    no_record = f.shiftleft("id", _ORDINAL_BITS) + f.lit(_NO_RECORD)
    empty = spark.range(count).select(no_record.alias("place"))
    latest = (
        keys.groupBy("hash", "more_hash")
        .agg(f.max("place").alias("place"))
        .select("place")
        .union(empty)
        .select(
            f.shiftright("place", _ORDINAL_BITS).cast("int").alias("part"),
            f.col("place").bitwiseAND(_NO_RECORD).alias("ordinal"),
        )
        .repartition(max(count, 1), "part")
        .sortWithinPartitions("part")
        .persist(StorageLevel.DISK_ONLY)
    )
    latest.count()
    return latest, found.value


def _tasks(wave: Wave) -> Iterator[list[int]]:
    """Yield the parts that a task reads."""
    task: list[int] = []
    size_bytes = 0
    for number in range(len(wave.parts)):
        size = wave.size_of(number)
        if task and size_bytes + size > _TASK_BYTES:
            yield task
            task, size_bytes = [], 0
        task.append(number)
        size_bytes += size
    if task:
        yield task


class _Collected(AccumulatorParam[dict[int, PartFacts | str]]):
    """Takes the facts of parts from tasks; a task that is repeated finds the same ones."""

    def zero(self, value: dict[int, PartFacts | str]) -> dict[int, PartFacts | str]:
        return {}

    def addInPlace(
        self, value1: dict[int, PartFacts | str], value2: dict[int, PartFacts | str]
    ) -> dict[int, PartFacts | str]:
        value1.update(value2)
        return value1


# --- tasks ----------------------------------------------------------------------------------


def _read_keys(
    sent: Broadcast[Wave],
    tasks: Sequence[Sequence[int]],
    found: Accumulator[dict[int, PartFacts | str]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Read the parts of a task; yield the latest records of their keys."""
    for batch in batches:
        for task in batch.column("id").to_pylist():
            for number in tasks[task]:
                yield from _read_part(sent.value, number, found)
    forget_archives()


def _read_part(
    wave: Wave, number: int, found: Accumulator[dict[int, PartFacts | str]]
) -> Iterator[pa.RecordBatch]:
    at, part = wave.parts[number]
    try:
        store = open_store(wave.place.store)
        with latest_in_part(store, wave.logs[at], part, wave.key) as (facts, some):
            found.add({number: facts})
            for one in some:
                columns = (
                    one.hashes.view(np.int64),
                    one.more_hashes.astype(np.int64) | at << _ORDINAL_BITS,
                    one.ordinals | number << _ORDINAL_BITS,
                )
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column) for column in columns], ["hash", "more_hash", "place"]
                )
    except _FAILURES as error:
        found.add({number: str(error)})


def _rewrite(
    sent: Broadcast[Wave],
    rewrites: Broadcast[dict[int, Rewrite]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Rewrite the parts of a task; yield their proposals."""
    context = TaskContext.get()
    assert context is not None, "it runs in a task"
    wave, first = sent.value, context.taskAttemptId() * _OBJECTS_MAX
    for count, (number, ordinals) in enumerate(_by_part(batches)):
        how = rewrites.value.get(number)
        if how is None:  # its log cannot be read
            continue
        at, part = wave.parts[number]
        proposal = failure = None
        try:
            store = open_store(wave.place.store)
            proposal = rewrite(
                store, wave.logs[at], part, how, ordinals, first + count
            ).encode()
        except _FAILURES as error:
            failure = str(error)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([number], pa.int32()),
                pa.array([proposal], pa.binary()),
                pa.array([failure], pa.string()),
            ],
            ["part", "proposal", "failure"],
        )
    forget_archives()


def _by_part(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Ordinals]]:
    """Yield each part with the ordinals of its rows, which are sorted by part."""
    current, some = -1, [np.empty(0, np.int64)]
    for batch in batches:
        parts = batch.column("part").to_numpy()
        ordinals = batch.column("ordinal").to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
        for start, stop in itertools.pairwise(edges):
            if start == stop:
                continue
            if parts[start] != current:
                if current >= 0:
                    yield current, _records(some)
                current, some = int(parts[start]), []
            some.append(ordinals[start:stop])
    if current >= 0:
        yield current, _records(some)


def _records(some: Sequence[Ordinals]) -> Ordinals:
    ordinals: Ordinals = np.concatenate(some)
    kept: Ordinals = ordinals[ordinals != _NO_RECORD]
    return kept
