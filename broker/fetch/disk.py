"""Reads that wait for the disk; both functions run in a thread."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from odradek.storage.errors import NotCached, StorageError
from odradek.storage.segment import Slice


def warm(cold: Sequence[NotCached]) -> None:
    """Read the bytes that plans need into the page cache."""
    for one in cold:
        with contextlib.suppress(StorageError):  # the next plan meets the error, and reports it
            one.warm()


def read_all(slices: list[Slice]) -> list[bytes | StorageError]:
    """Read slices, each with its own error."""
    read: list[bytes | StorageError] = []
    for one in slices:
        try:
            read.append(one.read())
        except StorageError as error:
            read.append(error)
    return read
