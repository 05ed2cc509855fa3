"""Positions in a segment to which another thread appends."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.storage.segment import Segment
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import Partition


def test_batches_before_an_offset_end_before_one_that_is_appended_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partition = Partition(CrashFileSystem())
    partition.append([(b"k", b"v")])
    active = partition.log.active
    size_bytes, next_offset = active.size_bytes, partition.log.log_end_offset
    locate = Segment.locate

    def locate_and_append(self: Segment, offset: int, **options: Any) -> tuple[int, int] | None:
        found = locate(self, offset, **options)
        partition.append([(b"k", b"v")])
        return found

    monkeypatch.setattr(Segment, "locate", locate_and_append)
    assert active.position_of(next_offset) == size_bytes
