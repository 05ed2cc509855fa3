"""Reads the small files beside a segment's: its index, and the filter of its keys."""

from __future__ import annotations

from pathlib import Path

from odradek.broker.shared.snapshot import SnapshotError
from odradek.pipeline.segment_files import Segment, open_regular
from odradek.storage.files import Buffer
from odradek.storage.objects.store import ObjectStoreError

INDEX, KEYS = ".index", ".keys"
# An index has 8 bytes for each KiB or more of a log, a filter some 6 bytes for each key.
_BYTES_MAX = 256 << 20


def read_beside(segment: Segment, kind: str) -> Buffer | None:
    """Return the INDEX or the KEYS of a segment; None if they are not there, or not readable."""
    try:
        if segment.shared is None:
            with open_regular(Path(segment.path).with_suffix(kind)) as file:
                return file.read(_BYTES_MAX)
        from odradek.pipeline.shared_bytes import read_piece

        part = segment.shared.part
        piece = {INDEX: part.index, KEYS: part.keys}[kind]
        return None if piece is None else read_piece(segment.shared.logs, piece)
    except (OSError, SnapshotError, ObjectStoreError):
        return None
