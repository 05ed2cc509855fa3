"""Replaces segments with cleaned ones, in steps that a crash cannot break.

Kafka's order (LocalLog.replaceSegments): first the new files, complete and durable as .cleaned,
are renamed to .swap, the one with the highest offset first; then the old ones to .deleted; then
the suffix .swap is dropped. After a crash recovery finishes the exchange once all new segments
are .swap; while one of them is still .cleaned, it undoes the exchange.

1. The log has all old segments or all new ones, in one assignment, and so has the next start.
2. Each step is durable before the next begins, so the steps reach the disk in order on every file
   system.
3. Before the log has the new segments an obstacle undoes the exchange; after that, it is finished.

    event loop                                          cleaner's thread
    Log.begin_exchange: refuses stale segments
                                                        sync
    step: .cleaned -> .swap, one new segment            sync, for each
    step: the log has the new segments; .deleted        sync, for each few old ones
    step: .swap -> no suffix                            sync

An exchange is undone and finished on the loop; the thread is notified at its next step.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from odradek.storage.errors import DiskFailure, StaleSegments, StorageError
from odradek.storage.files import FileSystem
from odradek.storage.segment import (
    CLEANED,
    DELETED,
    KEYS,
    LOG,
    NAME_DIGITS,
    SUFFIXES,
    SWAP,
    Segment,
)

logger = logging.getLogger(__name__)

# A segment's files are renamed in 0.1 ms: a step must not keep the event loop for long.
_RETIRED_PER_STEP = 8


class Owner(Protocol):
    """The operations that an exchange needs of its log (storage.log.Log)."""

    name: str
    directory: Path
    failure: StorageError | None

    @property
    def is_closed(self) -> bool:
        """Whether the log was deleted, or closed by a disk failure."""

    def touch_directory(self) -> None:
        """Note that names in the directory are about to change."""

    def switch(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put new segments in the place of old ones."""

    def retire(
        self, gone: Sequence[Segment], now_ms: int, replaced_by: Sequence[Segment]
    ) -> None:
        """Rename segments to .deleted, to be removed later."""


class Exchange:
    """One exchange. The event loop owns it; only sync() may run in a thread."""

    def __init__(
        self,
        fs: FileSystem,
        log: Owner,
        old: Sequence[Segment],
        new: Sequence[Segment],
        now_ms: int,
    ) -> None:
        self._fs, self._log, self._now_ms = fs, log, now_ms
        self._old, self._new = tuple(old), tuple(new)
        # A .swap segment must not survive a crash without the .cleaned ones of its exchange, nor
        # without the later segments, whose records made the removed ones obsolete.
        self._to_offer = sorted(new, key=lambda segment: segment.base_offset)  # the last first
        self._to_retire = list(old)
        self._is_switched = self._is_undone = self._is_over = False

    def concerns(self, segments: Sequence[Segment]) -> bool:
        """Return whether some of the log's segments are still being exchanged."""
        if self._is_over:
            return False
        return not set(segments).isdisjoint(self._new if self._is_switched else self._old)

    def sync(self) -> None:
        """Make the last step durable. Raises DiskFailure; then undo() must follow."""
        self._fs.sync_directory(self._log.directory)

    def step(self) -> bool:
        """Take the next step, now that the last one is durable; return whether there was one.

        Raises StaleSegments when the exchange is no longer possible, and DiskFailure, after
        which undo() must follow.
        """
        log = self._log
        if self._is_undone:
            raise StaleSegments(f"{log.name}: segments changed while they were exchanged")
        if self._is_over:
            return False
        if log.is_closed:
            if self._is_switched:  # recovery does the rest
                return False
            if log.failure is not None and len(self._to_offer) < len(self._new):
                raise log.failure  # recovery deals with the .swap files
            raise StaleSegments(f"{log.name}: it was closed while segments were exchanged")
        log.touch_directory()
        if self._to_offer:
            self._to_offer[-1].rename(SWAP)
            self._to_offer.pop()
        elif self._to_retire:
            if not self._is_switched:
                log.switch(self._old, self._new)
                self._is_switched = True
            log.retire(self._to_retire[:_RETIRED_PER_STEP], self._now_ms, self._new)
            del self._to_retire[:_RETIRED_PER_STEP]
        else:
            for segment in self._new:
                segment.rename("")
            self._is_over = True
        return True

    def undo(self) -> None:
        """Remove the new segments if the log does not have them yet: it stays unchanged.

        settle() removes the files that the disk does not remove now.
        """
        if not self._is_switched and not self._log.is_closed:
            self._is_undone = True
            with contextlib.suppress(DiskFailure):
                self._remove()

    def settle(self) -> None:
        """Undo or finish the exchange at once. Raises DiskFailure, and may be called again."""
        if self._is_over:
            return
        if self._is_switched:
            self.sync()
            while self.step():
                self.sync()
        else:
            self._is_undone = True
            self._remove()

    def _remove(self) -> None:
        # A .swap file that stayed would replace its originals at the next start.
        failure: DiskFailure | None = None
        self._log.touch_directory()
        for segment in self._new:
            for suffix in (SWAP, CLEANED):
                segment.suffix = suffix
                try:
                    segment.remove()
                except DiskFailure as error:
                    failure = error
        if failure is not None:
            raise failure
        self._is_over = True


def still_present(old: Sequence[Segment], segments: Sequence[Segment]) -> list[Segment]:
    """Return those of some segments that a log still has: retention may have deleted others."""
    there = set(segments)
    return [one for one in old if one in there]


def carry_out(
    sync: Callable[[], None], step: Callable[[], bool], undo: Callable[[], None]
) -> None:
    """Carry out an exchange by its three methods. Raises StaleSegments and DiskFailure."""
    try:
        sync()
        while step():
            sync()
    except DiskFailure:
        undo()
        raise


def repair(fs: FileSystem, directory: Path) -> None:
    """Finish or undo the deletions and exchanges that a crash interrupted."""
    names = fs.list(directory)
    for name in names:
        orphaned = name.endswith(KEYS) and name.removesuffix(KEYS) + LOG not in names
        if orphaned or name.endswith((DELETED, ".tmp")):
            fs.remove(directory / name)
    cleaned = [name for name in names if name.endswith(CLEANED)]
    undo_from = min((base_offset_of(n) for n in cleaned if LOG in n), default=None)
    swaps = {base_offset_of(n) for n in names if n.endswith(LOG + SWAP)}
    undone = {base for base in swaps if undo_from is not None and base >= undo_from}
    # The .cleaned files go last: they decide that an exchange is undone.
    for name in names:
        if name.endswith(SWAP) and base_offset_of(name) not in swaps - undone:
            fs.remove(directory / name)
    if undone:
        fs.sync_directory(directory)
    for name in cleaned:
        fs.remove(directory / name)
    kept = [Segment(fs, directory, base, suffix=SWAP) for base in sorted(swaps - undone)]
    if kept:
        _take_place(fs, directory, names, kept)


def base_offset_of(name: str) -> int:
    """Return the base offset that a file's name begins with, -1 when it has none."""
    digits = name[:NAME_DIGITS]
    return int(digits) if len(digits) == NAME_DIGITS and digits.isdecimal() else -1


def _take_place(
    fs: FileSystem, directory: Path, names: Sequence[str], kept: Sequence[Segment]
) -> None:
    first = kept[0].base_offset
    # An empty segment replaces the files of its name all the same.
    end = max(max(segment.next_offset, segment.base_offset + 1) for segment in kept)
    for name in names:
        if name.endswith(SUFFIXES) and first <= base_offset_of(name) < end:
            fs.remove(directory / name)
    fs.sync_directory(directory)
    for segment in kept:
        segment.rename("")
    fs.sync_directory(directory)
    for segment in kept:
        logger.info("finished the exchange of a cleaned segment file=%s", segment.path(LOG))
