"""Records that are lost, there more than once, or out of order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from tests.histories.checks.final import Final, is_acknowledged, offset_of
from tests.histories.checks.problem import Problem
from tests.histories.history import History, Place, Read


def find_lost(history: History, final: Final) -> Iterator[Problem]:
    """Find acknowledged records that are gone; those of compacted topics are judged by key."""
    for append in history.appends:
        place = append.place
        if not is_acknowledged(append) or history.topic(place).is_compacted:
            continue
        if not final.has_read(place):
            continue  # the run did not come to its end
        for at, value in enumerate(append.values):
            offset = offset_of(append, at)
            if not final.has(place, value) and not final.may_lack(place, value, offset):
                said = f"{value} in {place}, acknowledged at offset {offset}"
                yield Problem("lost", said, place, (offset,), (append,))


def find_repeated(history: History) -> Iterator[Problem]:
    """Find records that are there twice, or that nobody has sent there."""
    sent = {(one.place, value) for one in history.appends for value in one.values}
    repeated = {
        (one.place, value)
        for one in history.appends
        if one.is_repeated
        for value in one.values
    }
    for name, reads in _logs(history):
        seen: dict[tuple[Hashable, str], Read] = {}
        for one in reads:
            before = seen.setdefault((name(one), one.value), one)
            place = one.place
            if before.offset != one.offset and (place, one.value) not in repeated:
                said = f"{one.value} in {place} at {before.offset} and {one.offset}"
                yield Problem("twice", said, place, (before.offset, one.offset), (before, one))
            if (place, one.value) not in sent and before is one:
                said = f"{one.value} in {place} at {one.offset} was never sent there"
                yield Problem("twice", said, place, (one.offset,), (one,))


def _logs(history: History) -> Iterator[tuple[Callable[[Read], Hashable], list[Read]]]:
    """Iterate over the records in the end, and those that readers have met before.

    With them comes a function that names the log of a record: a local one that lost its end has
    others there in a later epoch.
    """
    for reads in history.final.values():
        yield lambda one: one.place, reads
    yield (
        lambda one: one.place if history.topic(one.place).keeps_reads else (one.place, one.epoch)
    ), history.reads


def find_disorder(history: History) -> Iterator[Problem]:
    """Find records of a producer that are before earlier ones."""
    plain = {value for one in history.appends if one.is_plain for value in one.values}
    for reads in history.final.values():
        yield from _disorder(reads, plain)
    for run in _runs(history):
        yield from _disorder(run, plain)


def _runs(history: History) -> Iterator[list[Read]]:
    """Iterate over the records that a reader met one after the other, before it went back.

    A local log that lost its end may have records again in a later epoch.
    """
    runs: dict[tuple[str, Place], list[Read]] = {}
    for one in history.reads:
        run = runs.setdefault((one.reader, one.place), [])
        is_new_log = run and run[-1].epoch != one.epoch
        may_lose = is_new_log and not history.topic(one.place).keeps_reads
        if run and (one.offset <= run[-1].offset or may_lose):
            yield run
            run = runs[one.reader, one.place] = []
        run.append(one)
    yield from runs.values()


def _disorder(reads: list[Read], plain: set[str]) -> Iterator[Problem]:
    last: dict[str, tuple[int, Read]] = {}
    for one in reads:
        if one.value in plain:
            continue
        producer, _, digits = one.value.rpartition("-")
        number, before = int(digits), last.get(producer)
        if before is not None and number <= before[0]:
            said = f"{one.value} in {one.place} at {one.offset} comes after {before[0]}"
            offsets = before[1].offset, one.offset
            yield Problem("order", said, one.place, offsets, (before[1], one))
        last[producer] = number, one
