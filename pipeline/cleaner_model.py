"""Compute the runs of a log cleaner over a partition, without a broker.

A partition is a list of records in order of offset. For each only two others matter: the previous
record of its key, and the next one in the dirty section, which begins at offset 1 here:

    offset     0   1   2   3   4   5
    key        a   b   a   c   b   a
    previous   -   -   0   -   1   2
    next       2   4   5   -   -   -

Kafka's cleaner fills a map of fixed size with the keys of the dirty section, and stops where it is
full. Then it copies every segment that begins before that offset, from the first one of the log
on, except records whose next one is in the map. The rest of the dirty section waits for another
run, which copies from the start of the log again. Source: Cleaner.buildOffsetMap, Cleaner.doClean
and SkimpyOffsetMap of Kafka 4.3.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from odradek.dataclass import dataclass

Offsets = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.float64]

NEVER = -1  # for no previous record and for no next one

_KAFKA_SLOT_BYTES = 24  # an MD5 and an offset
_KAFKA_BUFFER_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class KafkaCleaner:
    """The settings of Kafka's cleaner that matter here, with their defaults."""

    dedupe_buffer_bytes: int = 134_217_728
    threads: int = 1
    load_factor: float = 0.9

    @property
    def thread_bytes(self) -> int:
        """Return the share of the buffer that one thread has."""
        return self.dedupe_buffer_bytes // self.threads

    @property
    def map_bytes(self) -> int:
        """Return the size of one thread's map."""
        return min(self.thread_bytes, _KAFKA_BUFFER_MAX)

    @property
    def keys_max(self) -> int:
        """Return the number of keys that the map of one run can hold."""
        return int(self.map_bytes // _KAFKA_SLOT_BYTES * self.load_factor)

    def buffer_bytes_for(self, keys: int) -> int:
        """Return the least log.cleaner.dedupe.buffer.size with which a run holds these keys."""
        slots = math.ceil(keys / self.load_factor)
        return (slots + 1) * _KAFKA_SLOT_BYTES * self.threads


@dataclass(frozen=True, slots=True)
class Run:
    """One run over a partition: the dirty offsets that it covers, and its bytes.

    ``indexed_bytes`` are read to fill the map, ``read_bytes`` and ``written_bytes`` are copied.
    """

    start_offset: int
    end_offset: int
    indexed_bytes: float
    read_bytes: float
    written_bytes: float


class RunFinder:
    """Finds the end of each run of a cleaner whose map holds a number of keys.

    Takes the records of the dirty section piece by piece, in order of offset.
    """

    def __init__(self, first_dirty_offset: int, keys_max: int) -> None:
        self.ends: list[int] = []
        self._start, self._keys_max, self._keys = first_dirty_offset, keys_max, 0
        # The end of the run if a record follows; else the run covers the whole section.
        self._full_at: int | None = None

    def feed(self, offsets: Offsets, previous: Offsets) -> None:
        """Take the offsets of the next records, and of the previous records of their keys."""
        at = 0
        while at < len(offsets):
            if self._full_at is not None:
                self._start, self._keys = self._full_at, 0
                self.ends.append(self._full_at)
                self._full_at = None
            # Records below the start of this run belong to earlier runs.
            is_new = previous[at:] < self._start
            counts = self._keys + np.cumsum(is_new)
            filled = int(np.searchsorted(counts, self._keys_max))
            if filled == len(counts):
                self._keys = int(counts[-1])
                return
            at += filled + 1
            self._full_at = int(offsets[at - 1]) + 1

    def finish(self, end_offset: int) -> list[int]:
        """Return the ends of all runs; the last one is the end of the section."""
        return [*self.ends, end_offset]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The bytes of a partition by segment and by the run that removes them.

    ``bytes_by_run`` has a row for each segment, a column for each run, and a last column for the
    bytes that stay.
    """

    base_offsets: Offsets
    bytes_by_run: Bytes


def kafka_runs(
    sizes: Sizes,
    run_ends: Sequence[int],
    first_dirty_offset: int,
    *,
    min_cleanable_ratio: float,
) -> list[Run]:
    """Return the runs of Kafka's cleaner, until the log is not dirty enough for another.

    ``sizes`` has the segments below the first uncleanable offset, which is the last of
    ``run_ends``.
    """
    runs = []
    start = first_dirty_offset
    for number, end in enumerate(run_ends):
        left = sizes.bytes_by_run[:, number:].sum(axis=1)
        if _cleanable_ratio(sizes.base_offsets, left, start) <= min_cleanable_ratio:
            break
        copied = sizes.base_offsets < end
        indexed = _in_range(sizes.base_offsets, run_ends[-1], start, end) * left
        runs.append(
            Run(
                start,
                end,
                float(indexed.sum()),
                float(left[copied].sum()),
                float(sizes.bytes_by_run[copied, number + 1 :].sum()),
            )
        )
        start = end
    return runs


def _cleanable_ratio(base_offsets: Offsets, bytes_left: Bytes, first_dirty: int) -> float:
    total = float(bytes_left.sum())
    # A segment that the last run stopped in counts as dirty.
    dirty = float(bytes_left[_first_at(base_offsets, first_dirty) :].sum())
    return dirty / total if total else 0.0


def _in_range(base_offsets: Offsets, log_end: int, start: int, end: int) -> Bytes:
    """Return the share of each segment's offsets that lies in a range."""
    ends = np.append(base_offsets[1:], log_end)
    span = np.maximum(ends - base_offsets, 1)
    inside = np.minimum(ends, end) - np.maximum(base_offsets, start)
    share: Bytes = np.maximum(inside, 0) / span
    return share


def _first_at(base_offsets: Offsets, offset: int) -> int:
    """Return the index of the segment that contains an offset."""
    return max(int(np.searchsorted(base_offsets, offset, side="right")) - 1, 0)
