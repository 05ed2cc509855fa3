"""Leader epochs: which epoch wrote which offsets of a log (KIP-101).

Kept in `leader-epoch-checkpoint` in the partition's directory, as Kafka writes it:

    0        version
    2        count
    0 0      epoch, its first offset
    3 1042

Epochs and their first offsets grow from line to line.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from pathlib import Path

from odradek.storage.checkpoints import read_lines
from odradek.storage.errors import CorruptFile
from odradek.storage.files import FileSystem

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED = (-1, -1)
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1


class LeaderEpochs:
    """The epochs of one log, oldest first; owned by its Log."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self.path = directory / FILE_NAME
        self._entries: list[tuple[int, int]] = []

    def load(self) -> None:
        """Read the file; an absent one is a log without epochs."""
        if not self._fs.exists(self.path):
            return
        for number, line in enumerate(read_lines(self._fs, self.path, "0"), start=3):
            try:
                epoch, start = map(int, line.split())
            except ValueError:
                raise CorruptFile(self.path, number, "expected 'epoch offset'") from None
            last_epoch, last_start = self._entries[-1] if self._entries else UNDEFINED
            if epoch > _INT32_MAX or start > _INT64_MAX:
                raise CorruptFile(self.path, number, "the epoch or offset is too large")
            if epoch <= last_epoch or start <= last_start:
                raise CorruptFile(self.path, number, "epochs and offsets must grow")
            self._entries.append((epoch, start))

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self._entries[-1][0] if self._entries else -1

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """All (epoch, first offset), oldest first."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that an epoch begins at an offset, unless it has begun already."""
        if epoch > self.latest:
            # An epoch that wrote nothing is replaced by the one that starts at the same offset.
            kept = [entry for entry in self._entries if entry[1] < start_offset]
            self._store([*kept, (epoch, start_offset)])

    def begin(self, epoch: int) -> None:
        """Note the first epoch of a new log; its first flush makes the file durable."""
        entries = [(epoch, 0)]
        self._fs.write_bytes(self.path, _encode(entries))
        self._entries = entries

    def restore(self, entries: list[tuple[int, int]]) -> None:
        """Replace all entries by those read from the log."""
        if entries:
            self._store(entries)

    def copy_to(self, directory: Path) -> LeaderEpochs:
        """Write the entries into another directory, durably."""
        made = LeaderEpochs(self._fs, directory)
        made._store(list(self._entries))
        return made

    def follow(self, directory: Path) -> None:
        """Note that the directory was renamed."""
        self.path = directory / FILE_NAME

    def truncate_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at or after an offset."""
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        if len(kept) < len(self._entries):
            self._store(kept)

    def truncate_start(self, start_offset: int) -> None:
        """Forget the epochs that end before an offset; the epoch that holds it starts there."""
        at = bisect.bisect_right(self._entries, start_offset, key=lambda entry: entry[1]) - 1
        if at > 0 or (at == 0 and self._entries[0][1] < start_offset):
            self._store([(self._entries[at][0], start_offset), *self._entries[at + 1 :]])

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch not above the given one, and the offset where it ends.

        (-1, -1) when the log has no such epoch (KIP-279, LeaderEpochFileCache.endOffsetFor).
        """
        if epoch == -1 or not self._entries or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        at = bisect.bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if at == 0:
            return epoch, self._entries[0][1]
        return self._entries[at - 1][0], self._entries[at][1]

    def epoch_of(self, offset: int) -> int:
        """Return the epoch that wrote an offset, -1 when it is not known."""
        at = bisect.bisect_right(self._entries, offset, key=lambda entry: entry[1]) - 1
        return self._entries[at][0] if at >= 0 else -1

    def _store(self, entries: list[tuple[int, int]]) -> None:
        self._fs.write_atomically(self.path, _encode(entries))
        self._entries = entries


def _encode(entries: Sequence[tuple[int, int]]) -> bytes:
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    return ("\n".join(lines) + "\n").encode()
