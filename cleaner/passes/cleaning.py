"""One cleaning, as its steps share it: the job, and the means to carry it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TypeAlias

from odradek.cleaner.passes.chunks import Room
from odradek.cleaner.passes.stats import Counters
from odradek.cleaner.rules.job import CleaningJob
from odradek.dataclass import dataclass
from odradek.storage.files import FileSystem
from odradek.storage.transactions import AbortedTransaction

# Finds the aborted transactions that overlap with a range of offsets. Raises CorruptFile.
AbortedSource: TypeAlias = Callable[[int, int], list[AbortedTransaction]]


@dataclass(frozen=True, slots=True)
class Cleaning:
    """A job that a thread carries out."""

    job: CleaningJob
    fs: FileSystem
    aborted: AbortedSource
    counters: Counters
    before_io: Callable[[int], None]  # gets the bytes of each read and write; may wait, or raise
    room: Room = field(default_factory=Room)
