"""The errors that end a cleaning early."""

from __future__ import annotations

from pathlib import Path

from odradek.storage.errors import CorruptFile


class CleaningAborted(Exception):
    """The log was deleted, or its cleaning paused: the output so far is of no use."""


class VerificationFailed(CorruptFile):
    """The output of a cleaning differs from the result that the rules give; nothing was swapped.

    Names the file, the position in it, and the first offset that differs; never the contents of
    a record.
    """

    def __init__(self, path: Path, position: int, offset: int, cause: str) -> None:
        problem = f"the proof of its cleaning failed at offset {offset}: {cause}"
        super().__init__(path, position, problem)
        self.offset = offset
