"""Exchanges that take their time: each ends before the next begins, whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.cleaner.passes.clean import clean
from odradek.cleaner.rules.job import make_job
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.progress import find_candidate
from odradek.storage.errors import CorruptFile, StaleSegments
from odradek.storage.segment import CLEANED, KEYS, Segment
from tests.cleaner.once import SETTINGS
from tests.cleaner.worlds import EAGER, FS, World, pairs

COUNT = 4


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A log of segments of the same size; the last record of each is the only one to stay."""
    world = World(tmp_path, replace(EAGER, segment_bytes=150))
    for at in range(COUNT):
        world.append(pairs(f"a:{at} b{at}:{at}"))
        world.roll()
    return world


class Upload:
    """Proposals whose exchanges happen when they are completed, and the events of both."""

    def __init__(self, world: World) -> None:
        self.world, self.events = world, list[tuple[str, int]]()
        self.refused = -1  # the base offset of the one that is stale

    def propose(self, old: Sequence[Segment], new: Sequence[Segment]) -> Callable[[], None]:
        (made,) = new
        self.events.append(("begun", made.base_offset))

        def complete() -> None:
            self.events.append(("completed", made.base_offset))
            if made.base_offset == self.refused:
                raise StaleSegments("the log has changed")
            self.world.log.replace_segments(old, new, self.world.now_ms)

        return complete

    def clean(self) -> None:
        world = self.world
        candidate = find_candidate(world.log, world.directory, world.now_ms)
        assert candidate is not None
        clean(
            make_job(world.log, candidate.dirty, SETTINGS, world.now_ms, Reason.DIRTY),
            fs=FS, random_below=lambda n: n // 3, clock_ms=lambda: 0,
            before_io=lambda size: None, propose=self.propose,
        )  # fmt: skip


def names(world: World) -> list[str]:
    return [path.name for path in world.log.directory.iterdir()]


def test_each_exchange_is_completed_before_the_next_begins(world: World) -> None:
    upload = Upload(world)
    upload.clean()
    begun = [base for event, base in upload.events if event == "begun"]
    assert len(begun) == COUNT - 1  # nothing in the last segment is obsolete
    assert upload.events == [
        (event, base) for base in begun for event in ("begun", "completed")
    ]
    assert world.values() == [f"b{at}:{at}" for at in range(COUNT - 1)] + ["a:3", "b3:3"]
    assert sum(name.endswith(KEYS) for name in names(world)) == COUNT


def test_a_refused_exchange_leaves_neither_its_segment_nor_the_next(world: World) -> None:
    upload = Upload(world)
    upload.refused = world.log.segments[1].base_offset
    with pytest.raises(StaleSegments):
        upload.clean()
    assert upload.events[-1] == ("completed", upload.refused)
    assert not [name for name in names(world) if name.endswith(CLEANED)]


def test_an_exchange_that_has_begun_is_completed_before_an_error_is_raised(
    world: World,
) -> None:
    upload = Upload(world)
    second = world.log.segments[1].log
    begin, complete = upload.propose, []

    def propose(old: Sequence[Segment], new: Sequence[Segment]) -> Callable[[], None]:
        complete.append(begin(old, new))
        second.truncate(second.size() - 1)  # the cleaning of the next one fails
        return complete[-1]

    upload.propose = propose  # type: ignore[method-assign]
    with pytest.raises(CorruptFile):
        upload.clean()
    assert [event for event, _ in upload.events] == ["begun", "completed"]
