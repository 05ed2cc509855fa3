"""What ends a cleaning early."""

from __future__ import annotations

from pathlib import Path

from storage.errors import CorruptFile


class CleaningAborted(Exception):
    """The log was deleted, or its cleaning paused: what was written so far is of no use."""


class VerificationFailed(CorruptFile):
    """The output of a cleaning is not what the rules leave of its input; nothing was swapped.

    Names the file, the position in it, and the first offset that differs; never what is in a
    record.
    """

    def __init__(self, path: Path, position: int, offset: int, cause: str) -> None:
        told = f"the proof of its cleaning failed at offset {offset}: {cause}"
        super().__init__(path, position, told)
        self.offset = offset
