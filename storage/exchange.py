"""Puts cleaned segments in the place of those they were made from, so that no crash breaks it.

Kafka's order (LocalLog.replaceSegments): first the new files, complete and durable as .cleaned,
are renamed to .swap, the one with the highest offset first; then the old ones to .deleted; then
the suffix .swap is dropped. Once a segment is .swap recovery finishes the exchange; while one
of its fellows is still .cleaned it undoes it. The directory is made durable after each step,
so that the steps reach the disk in order whatever the file system does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from storage.errors import DiskFailure
from storage.files import FileSystem
from storage.segment import (
    CLEANED,
    DELETED,
    LOG,
    NAME_DIGITS,
    SUFFIXES,
    SWAP,
    Segment,
)

logger = logging.getLogger(__name__)


def offer(fs: FileSystem, directory: Path, new: Sequence[Segment]) -> None:
    """Turn segments from .cleaned into .swap: from now on the exchange takes place.

    When the disk refuses, the segments are removed and nothing has happened: raises DiskFailure.
    """
    try:
        # One that is .swap must not come through a crash without its fellows' .cleaned, nor
        # without the later segments, whose records made obsolete what it lacks.
        fs.sync_directory(directory)
        for segment in sorted(new, key=lambda s: s.base_offset, reverse=True):
            segment.rename(SWAP)
            fs.sync_directory(directory)
    except DiskFailure:
        # A .swap that stayed would take the place of its originals at the next start.
        for segment in new:
            for suffix in (SWAP, CLEANED):
                segment.suffix = suffix
                with contextlib.suppress(DiskFailure):
                    segment.remove()
        raise


def finish(fs: FileSystem, directory: Path, new: Sequence[Segment]) -> None:
    """Give offered segments their final names, once the old ones are renamed to .deleted."""
    fs.sync_directory(directory)
    for segment in new:
        segment.rename("")
    fs.sync_directory(directory)


def repair(fs: FileSystem, directory: Path) -> None:
    """Remove, finish or undo what deletions and exchanges left half done at a crash."""
    names = fs.list(directory)
    for name in names:
        if name.endswith((DELETED, ".tmp")):
            fs.remove(directory / name)
    cleaned = [name for name in names if name.endswith(CLEANED)]
    undo_from = min((base_offset_of(n) for n in cleaned if LOG in n), default=None)
    swaps = {base_offset_of(n) for n in names if n.endswith(LOG + SWAP)}
    undone = {base for base in swaps if undo_from is not None and base >= undo_from}
    # What decides that an exchange is undone goes last.
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
    # One of which nothing is left takes the place of the files of its name all the same.
    end = max(max(segment.next_offset, segment.base_offset + 1) for segment in kept)
    for name in names:
        if name.endswith(SUFFIXES) and first <= base_offset_of(name) < end:
            fs.remove(directory / name)
    finish(fs, directory, kept)
    for segment in kept:
        logger.info("finished the exchange of a cleaned segment file=%s", segment.path(LOG))
