"""The last runs of each partition, kept across a restart.

Each log directory has a file of lines (cleaner/runtime/runs.py), to which ended runs are appended:

    data/odradek-cleaner-history.jsonl

Processes that share a directory have a file each (`odradek-cleaner-history.2.jsonl`); they read
all, since a partition may have been another's. Kafka ignores an unknown file; it would take a
directory for a partition. The file only informs: it is written in a thread and never flushed to
the disk, so that a crash may lose its last lines or tear one. A damaged line is left out. A file
that has twice the lines to keep is written again.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.quarantine import Quarantined
from odradek.cleaner.runtime.runs import DamagedRun, Run, decode_run, encode_run
from odradek.dataclass import dataclass
from odradek.storage.errors import StorageError
from odradek.storage.files import FileSystem
from odradek.storage.log import Log

logger = logging.getLogger(__name__)
runs_logger = logging.getLogger("odradek.cleaner.runtime.runs")

_STEM, _SUFFIX = "odradek-cleaner-history", ".jsonl"
FILE_NAME = _STEM + _SUFFIX
HISTORY_PER_PARTITION = 10
# A file with fewer lines is not written again: that would save little.
_LINES_MIN = 100

Key = tuple[str, int, bytes]
Submit = Callable[[Callable[[], None]], object]


@dataclass(slots=True)
class Totals:
    """The totals of all runs of a partition since the start."""

    run_count: int = 0
    failure_count: int = 0
    reclaimed_bytes: int = 0
    spilled_bytes: int = 0


@dataclass(slots=True)
class _Partition:
    directory: Path
    runs: deque[Run]
    totals: Totals


class History:
    """The runs that are kept; owned by the event loop."""

    def __init__(self, logs: Iterable[Log]) -> None:
        """`logs` has all current logs, each time that it is iterated over."""
        self._logs = logs
        self._partitions: dict[Key, _Partition] = {}
        self._store: HistoryStore | None = None
        self.ended_count = 0  # runs that have ended since the start
        # The log directories whose files were read (True) or are being read (False).
        self._is_loaded: dict[Path, bool] = {}

    @property
    def is_loaded(self) -> bool:
        """Whether the runs of before the start have been read."""
        return all(self._is_loaded.values())

    def keep(self, store: HistoryStore) -> None:
        """Read the kept runs, and write runs to files from now on."""
        self._store = store
        for directory in {log.directory.parent for log in self._logs}:
            self._load(directory)

    def _load(self, directory: Path) -> None:
        if self._store is not None and directory not in self._is_loaded:
            self._is_loaded[directory] = False
            self._store.load(directory, self._restore)

    def _restore(self, directory: Path, runs: Iterable[Run]) -> None:
        """Add the runs in a file, for the partitions that exist."""
        present = {_key(log): log for log in self._logs if log.directory.parent == directory}
        ended_meanwhile = any(one.runs for one in self._in(directory))
        earlier: dict[Key, list[Run]] = {}
        for run in runs:
            earlier.setdefault((run.topic, run.partition, run.topic_id), []).append(run)
        for key in earlier.keys() & present.keys():
            entry = self._entry(present[key])
            entry.runs = deque([*earlier[key], *entry.runs], HISTORY_PER_PARTITION)
        self._is_loaded[directory] = True
        if ended_meanwhile:
            self._write_all(directory)

    def succeeded(self, log: Log, result: CleanResult, at_ms: int) -> None:
        """Add a cleaning that went well."""
        totals = self._entry(log).totals
        totals.run_count += 1
        totals.reclaimed_bytes += result.reclaimed_bytes
        totals.spilled_bytes += result.spilled_bytes
        self._add(log, Run(log.topic, log.partition, log.topic_id, at_ms, result, None))

    def failed(self, log: Log, failure: Quarantined, at_ms: int) -> None:
        """Add a cleaning that failed."""
        self._entry(log).totals.failure_count += 1
        self._add(log, Run(log.topic, log.partition, log.topic_id, at_ms, None, failure))

    def runs(self, log: Log) -> tuple[Run, ...]:
        """Return a log's last runs, the oldest first."""
        entry = self._partitions.get(_key(log))
        return tuple(entry.runs) if entry else ()

    def all(self) -> Iterator[Run]:
        """Iterate over all runs that are kept."""
        return (run for entry in self._partitions.values() for run in entry.runs)

    def last_good(self, log: Log) -> Run | None:
        """Return the last run of a log that went well."""
        entry = self._partitions.get(_key(log))
        return _last_good(entry) if entry else None

    def last_results(self) -> list[CleanResult]:
        """Return the result of the last successful run of each partition."""
        runs = map(_last_good, self._partitions.values())
        return [run.result for run in runs if run is not None and run.result is not None]

    def totals(self, log: Log) -> Totals:
        """Return the totals of all runs of a log since the start."""
        entry = self._partitions.get(_key(log))
        return entry.totals if entry else Totals()

    def forget_absent(self) -> None:
        """Drop the runs of partitions that no longer exist."""
        if self._partitions:
            for key in self._partitions.keys() - {_key(log) for log in self._logs}:
                del self._partitions[key]

    def _add(self, log: Log, run: Run) -> None:
        self.ended_count += 1
        entry = self._entry(log)
        entry.runs.append(run)
        line = encode_run(run)
        runs_logger.info("%s", line[:-1].decode())
        if not self._is_loaded.get(entry.directory):
            self._load(entry.directory)  # the run is written once the file has been read
        elif self._store is not None:
            lines_max = max(2 * HISTORY_PER_PARTITION * len(self._partitions), _LINES_MIN)
            if self._store.line_count(entry.directory) >= lines_max:
                self._write_all(entry.directory)
            else:
                self._store.append(entry.directory, line)

    def _write_all(self, directory: Path) -> None:
        if self._store is not None:
            kept = [run for one in self._in(directory) for run in one.runs]
            self._store.write(directory, kept)

    def _in(self, directory: Path) -> Iterator[_Partition]:
        return (one for one in self._partitions.values() if one.directory == directory)

    def _entry(self, log: Log) -> _Partition:
        return self._partitions.setdefault(
            _key(log),
            _Partition(log.directory.parent, deque(maxlen=HISTORY_PER_PARTITION), Totals()),
        )


class HistoryStore:
    """The files. The event loop requests operations, and one thread does them in order."""

    def __init__(
        self, fs: FileSystem, submit: Submit, call: Submit, process: int | None = None
    ) -> None:
        """`submit` runs a function in the thread, `call` runs one on the event loop.

        `process` is the number of one of several processes that share log directories.
        """
        self._fs, self._submit, self._call = fs, submit, call
        self._is_shared = process is not None
        self._name = FILE_NAME if process is None else f"{_STEM}.{process}{_SUFFIX}"
        # The number of lines in each file. A file that was damaged, or could not be written, has
        # no entry: it must be written again.
        self._line_counts: dict[Path, int] = {}

    def line_count(self, directory: Path) -> float:
        """Return the number of lines in a file; infinity if it must be written again."""
        return self._line_counts.get(directory, math.inf)

    def load(self, directory: Path, loaded: Callable[[Path, list[Run]], None]) -> None:
        """Read a log directory's file, then call a function on the event loop."""

        def read() -> None:
            runs = self._read(directory / self._name, directory)
            if self._is_shared:
                for path in self._others(directory):
                    runs += self._read(path, None)
                # A run may be in several files: of processes that had the partition in turn.
                distinct = {(one.topic_id, one.partition, one.at_ms): one for one in runs}
                runs = sorted(distinct.values(), key=lambda one: one.at_ms)
            self._call(lambda: loaded(directory, runs))

        self._submit(read)

    def append(self, directory: Path, line: bytes) -> None:
        """Add a line."""

        def append() -> None:
            file = self._fs.open(directory / self._name, write=True)
            file.append(file.size(), [line])

        self._submit(lambda: self._try(directory, append, self._line_counts.get(directory, 0) + 1))

    def write(self, directory: Path, runs: Sequence[Run]) -> None:
        """Write the file again."""

        def write() -> None:
            self._fs.write_atomically(directory / self._name, b"".join(map(encode_run, runs)))

        self._submit(lambda: self._try(directory, write, len(runs)))

    def _try(self, directory: Path, act: Callable[[], None], line_count: int) -> None:
        """Write a file; after a failure it is written again the next time."""
        self._line_counts.pop(directory, None)
        try:
            act()
        except StorageError as error:
            logger.warning("failed to write the history of cleanings: %s", error)
        else:
            self._line_counts[directory] = line_count

    def _others(self, directory: Path) -> list[Path]:
        """Return the files of other processes."""
        names = self._fs.list(directory)
        return [
            directory / name
            for name in names
            if name.startswith(_STEM) and name.endswith(_SUFFIX) and name != self._name
        ]

    def _read(self, path: Path, directory: Path | None) -> list[Run]:
        """Return the runs in a file; with its directory, count the lines of the own one."""
        runs: list[Run] = []
        try:
            data = self._fs.read_bytes(path) if self._fs.exists(path) else b""
        except StorageError as error:
            logger.warning("failed to read the history of cleanings: %s", error)
            return runs
        lines = data.splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                if not line.endswith(b"\n"):
                    raise DamagedRun("it has no end")
                runs.append(decode_run(line))
            except DamagedRun as error:
                logger.warning("left out a damaged line file=%s line=%d: %s", path, number, error)
        if directory is not None and len(runs) == len(lines):
            self._line_counts[directory] = len(lines)
        return runs


def _last_good(entry: _Partition) -> Run | None:
    return next((run for run in reversed(entry.runs) if run.result is not None), None)


def _key(log: Log) -> Key:
    return log.topic, log.partition, log.topic_id
