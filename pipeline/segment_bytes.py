"""Opens the bytes of segments: of files, or of the objects and entries of shared topics."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TypeAlias

from odradek.pipeline.segment_files import Segment, open_regular

Opener: TypeAlias = Callable[[Segment], io.RawIOBase]
"""Opens the bytes of a segment. Raises OSError, and PipelineError."""


def opener(segments: Sequence[Segment]) -> Opener:
    """Return a function that opens segments of a task, read one after the other, and others."""
    shared = [one for one in segments if one.shared is not None]
    if not shared:
        return open_bytes
    from odradek.pipeline.shared_bytes import SharedBytes

    together = SharedBytes(shared)
    own = set(shared)
    return lambda segment: (
        together.open(segment) if segment in own else open_bytes(segment)
    )


def open_bytes(segment: Segment) -> io.RawIOBase:
    """Open the bytes of one segment."""
    if segment.shared is None:
        return open_regular(segment.path)
    from odradek.pipeline.shared_bytes import SharedBytes

    return SharedBytes([segment]).open(segment)
