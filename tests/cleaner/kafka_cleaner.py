"""Apache Kafka's own cleaner, on logs of its own: CleanerOracle.java and what it leaves."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from odradek.config.topic import TopicConfig
from odradek.protocol.legacy import decode_stored, read_stored_header
from odradek.storage.checkpoints import CLEANER_OFFSETS
from odradek.storage.segment import LOG, TXN_INDEX
from odradek.storage.transactions import AbortedTransaction, parse_aborted
from tests.cleaner.random_histories import EXPIRATION_MS
from tests.cleaner.worlds import StoredBatch
from tests.support.java import program

# Nothing but the test rolls segments; indexes are small, for each is given its size on the disk.
_RELAXED = {
    "cleanup.policy": "compact",
    "segment.ms": str(2**63 - 1),
    "segment.index.bytes": str(1 << 16),
    "max.message.bytes": str(1 << 20),
}
_KEYS = 10_000
# Where there is such a place: thousands of fsyncs take a while.
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
# What it is asked to do, it answers for: what it logs is of no interest.
_FLAGS = ("-Droot.level=OFF", "-Dcleaner.level=OFF")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a cleaning of Kafka's says of itself."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    end_offset: int
    rounds: int


class KafkaFailed(Exception):
    """Kafka's code has raised an error, which is the message."""


class KafkaCleaner:
    """A running oracle, with a log directory; owns its process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        source = Path(__file__).with_name("CleanerOracle.java")
        command = program(source, str(root), flags=_FLAGS)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1 << 20
        )
        self._count = 0

    def open(
        self,
        config: TopicConfig,
        now_ms: int,
        copy_of: Path | None = None,
        checkpoint: int | None = None,
    ) -> KafkaLog:
        """Open a new log, or a copy of another's directory, clean up to the checkpoint."""
        name = f"prices-{self._count}"
        if copy_of is not None:
            # Without the topic's id: that of all zeros, which tests use, Kafka refuses.
            ignored = shutil.ignore_patterns("partition.metadata")
            shutil.copytree(copy_of, self.root / name, ignore=ignored)
        if checkpoint is not None:
            text = f"0\n1\nprices {self._count} {checkpoint}\n"
            (self.root / CLEANER_OFFSETS).write_text(text)
        self._count += 1
        self.tell("open", name, now_ms, EXPIRATION_MS, *_words({**_RELAXED, **_RARE}))
        return KafkaLog(self, self.root / name, config)

    def tell(self, *words: object) -> None:
        """Send a command that is not answered."""
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin)

    def ask(self, *words: object) -> str:
        """Send a command, and return its answer. Raises KafkaFailed."""
        self.tell(*words)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer.endswith("\n"), "the oracle has ended"
        if answer.startswith("failed"):
            raise KafkaFailed(answer[:-1])
        return answer[:-1]

    def close(self) -> None:
        """End the process by ending its input."""
        self._process.communicate(timeout=60)


class KafkaLog:
    """One log of the oracle's, the one that was opened last."""

    def __init__(self, oracle: KafkaCleaner, directory: Path, config: TopicConfig) -> None:
        self._oracle, self.directory, self.config = oracle, directory, config

    def append(self, batch: bytes) -> None:
        """Append a batch as it is, as a replica does."""
        self._oracle.tell("append", base64.b64encode(batch).decode())

    def roll(self) -> None:
        """Seal the active segment."""
        self._oracle.tell("roll")

    def expire(self, now_ms: int) -> None:
        """Forget silent producers."""
        self._oracle.tell("now", now_ms)
        self._oracle.tell("expire")

    def trim(self, offset: int, *, deletes_segments: bool) -> None:
        """Move the log start offset, and perhaps delete the segments before it."""
        self._oracle.tell("start", offset)
        if deletes_segments:
            self._oracle.tell("delete")

    def segment_offsets(self) -> list[int]:
        """Return the base offsets of its segments."""
        return [int(word) for word in self._oracle.ask("segments").split()]

    def reopen(self, now_ms: int, start_offset: int) -> None:
        """Close it, and load it again."""
        self._oracle.tell("now", now_ms)
        self._oracle.tell("reopen", start_offset, EXPIRATION_MS, *_words({**_RELAXED, **_RARE}))

    def clean(self, now_ms: int, keys: int | None, buffer_bytes: int) -> Cleaned | None:
        """Clean it, up to the end of what can be cleaned; None when it is not to be cleaned."""
        config = self.config
        strict = {
            "internal.segment.bytes": config.internal_segment_bytes,
            "index.interval.bytes": config.index_interval_bytes,
            "delete.retention.ms": config.delete_retention_ms,
            "min.cleanable.dirty.ratio": config.min_cleanable_dirty_ratio,
            "min.compaction.lag.ms": config.min_compaction_lag_ms,
            "max.compaction.lag.ms": config.max_compaction_lag_ms,
        }
        self._oracle.tell("now", now_ms)
        self._oracle.tell("configure", *_words({**_RELAXED, **strict}))
        rounds_max = 1 if keys is None else 100
        answer = self._oracle.ask("clean", keys or _KEYS, buffer_bytes, rounds_max)
        self._oracle.tell("configure", *_words({**_RELAXED, **_RARE}))
        return None if answer == "idle" else Cleaned(*map(int, answer.split()[1:]))

    def close(self) -> None:
        """Close it, and remove its files. Raises KafkaFailed."""
        try:
            self._oracle.ask("close")
        finally:
            shutil.rmtree(self.directory)


def batches_in(directory: Path) -> list[StoredBatch]:
    """Read all batches of a log's files, of every format."""
    found = []
    for path in sorted(directory.glob(f"*{LOG}")):
        data, position = memoryview(path.read_bytes()), 0
        while position < len(data):
            header = read_stored_header(data, position)
            records = decode_stored(data, position)
            found.append(StoredBatch(header, tuple(records)))
            position += header.size_bytes
    return found


def aborted_in(directory: Path) -> list[AbortedTransaction]:
    """Read the aborted transactions of a log's transaction indexes."""
    paths = sorted(directory.glob(f"*{TXN_INDEX}"))
    return [one for path in paths for one in parse_aborted(path.read_bytes(), path)]


def segment_offsets(directory: Path) -> list[int]:
    """Return the base offsets of a log's segments."""
    return sorted(int(path.name.removesuffix(LOG)) for path in directory.glob(f"*{LOG}"))


# While a history is written: no segment is full, or old enough, to be rolled by itself.
_RARE = {"internal.segment.bytes": str(1 << 30), "max.compaction.lag.ms": str(2**63 - 1)}


def _words(settings: Mapping[str, object]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]
