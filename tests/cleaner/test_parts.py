"""Cleaning a log in parts, against cleaning it as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.passes.cleaning import Cleaning
from odradek.cleaner.passes.hashing import HashKey
from odradek.cleaner.passes.parts import LatestInPart, met_before, rewrite_part
from odradek.cleaner.passes.stats import Counters
from odradek.cleaner.rules.job import CleanerSettings, CleaningJob, make_job
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.progress import find_candidate
from odradek.storage.reading import aborted_between
from odradek.storage.segment import Segment
from odradek.storage.transactions import AbortedTransaction
from tests.cleaner.histories import HISTORIES, Author, Clean, Roll, Step
from tests.cleaner.once import SETTINGS
from tests.cleaner.test_clean_model import SPILLING, new_world
from tests.cleaner.worlds import FS, World

pytestmark = pytest.mark.slow

KEY = HashKey(12345, 67890)
HOW = st.sampled_from([SETTINGS, replace(SETTINGS, chunk_bytes=200), SPILLING])


def in_parts(
    job: CleaningJob, groups: Sequence[range], log_start_offset: int
) -> list[tuple[range, Segment]]:
    """Carry out a job in parts, the last ones first; return the segments that were made."""
    aborted = partial(aborted_between, job.segments + job.later_segments)
    cleaning = Cleaning(job, FS, aborted, Counters(), lambda size: None)
    latest: dict[tuple[int, int], tuple[int, int]] = {}
    facts = {}
    for number, places in reversed(list(enumerate(groups))):
        with LatestInPart(cleaning, places, log_start_offset) as part:
            facts[number] = part.find(KEY)
            for some in part.latest():
                for *key, ordinal in zip(*(one.tolist() for one in some), strict=True):
                    place = (number, ordinal)
                    latest[tuple(key)] = max(latest.get(tuple(key), place), place)
    kept = defaultdict(list)
    for number, ordinal in latest.values():
        kept[number].append(ordinal)
    before = met_before([facts[number].met for number in range(len(groups))])
    made = []
    for number, places in reversed(list(enumerate(groups))):
        rewritten = rewrite_part(
            cleaning,
            places,
            facts[number],
            np.array(kept[number], np.int64),
            before[number],
            log_start_offset=log_start_offset,
            filter_point=1,
        )
        if rewritten.segment is not None:
            made.append((places, rewritten.segment))
    return made


def clean_in_parts(world: World, how: CleanerSettings, sizes: Sequence[int]) -> bool:
    """Clean a log in parts, each of so many segments; return whether there was work."""
    log, offsets = world.log, world.directory
    candidate = find_candidate(log, offsets, world.now_ms)
    if candidate is None or candidate.reason is None:
        return False
    job = make_job(log, candidate.dirty, how, world.now_ms, Reason.ASKED)
    groups, start = [], 0
    for size in [*sizes, *[1] * len(job.segments)]:
        stop = min(start + size, len(job.segments))
        if start < stop:
            groups.append(range(start, stop))
        start = stop
    for places, segment in in_parts(job, groups, log.log_start_offset):
        log.replace_segments(job.segments[places.start : places.stop], [segment], world.now_ms)
    offsets.cleaner_offsets[log.topic, log.partition] = job.dirty.first_uncleanable_offset
    return True


@given(HISTORIES, HOW, st.lists(st.integers(1, 4), max_size=5), st.sampled_from([1, 600]))
def test_a_log_cleaned_in_parts_equals_one_cleaned_as_a_whole(
    steps: list[Step], how: CleanerSettings, sizes: list[int], segment_bytes: int
) -> None:
    with new_world(segment_bytes) as whole, new_world(segment_bytes) as parted:
        authors = Author(whole), Author(parted)
        for step in [*steps, Roll(), Clean(0)]:
            for author in authors:
                if not isinstance(step, Clean):
                    author.write(step)
                    continue
                author.end_all()
                author.world.now_ms += step.after_ms
            if isinstance(step, Clean):
                was_cleaned = whole.clean() is not None
                assert clean_in_parts(parted, how, sizes) == was_cleaned
                assert [b.facts for b in parted.batches()] == [b.facts for b in whole.batches()]
                assert parted.records() == whole.records()
                assert aborted_of(parted) == aborted_of(whole)


def aborted_of(world: World) -> list[AbortedTransaction]:
    """Return the aborted transactions of the whole log."""
    return sorted(aborted_between(world.log.segments, 0, world.log.log_end_offset))
