"""Offsets that have other records than somebody knew, and logs whose bounds go back."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator

from tests.histories.checks.final import Final
from tests.histories.checks.problem import Problem
from tests.histories.checks.transactions import transactions_by_value
from tests.histories.history import Deletion, History, Outcome, Place, Read, Watermark


def find_moved(history: History) -> Iterator[Problem]:
    """Find offsets at which two readers saw different records.

    A local log that lost its end may have others there in a later epoch.
    """
    seen: dict[Hashable, Read] = {}
    for reads in (history.reads, *history.final.values()):
        for one in reads:
            if history.topic(one.place).keeps_reads:
                continue  # find_unstable
            known = seen.setdefault((one.place, one.offset, one.epoch), one)
            if known.value != one.value:
                where = f"{one.place} at {one.offset}, epoch {one.epoch}"
                yield _divergence("offsets", where, known, one)


def _divergence(kind: str, where: str, known: Read, one: Read) -> Problem:
    said = f"{where}: {known.reader} read {known.value}, {one.reader} read {one.value}"
    return Problem(kind, said, one.place, (one.offset,), (known, one))


def find_displaced(history: History) -> Iterator[Problem]:
    """Find records that are in the end at other offsets than their producers were given."""
    where = {
        (place, one.value): one for place, reads in history.final.items() for one in reads
    }
    for append in history.appends:
        if append.outcome is not Outcome.DONE or append.offset < 0:
            continue
        for at, value in enumerate(append.values, append.offset):
            found = where.get((append.place, value))  # `find_lost` reports missing ones
            if found is not None and found.offset != at and not append.is_repeated:
                said = f"{value} in {append.place} is at {found.offset}, answered was {at}"
                offsets = at, found.offset
                yield Problem("offsets", said, append.place, offsets, (append, found))


def find_unsorted(history: History) -> Iterator[Problem]:
    """Find offsets that do not grow in the end."""
    for place, reads in history.final.items():
        for before, after in itertools.pairwise(reads):
            if after.offset <= before.offset:
                said = f"{place} has {after.offset} after {before.offset}"
                offsets = before.offset, after.offset
                yield Problem("offsets", said, place, offsets, (before, after))


def find_unstable(history: History, final: Final) -> Iterator[Problem]:
    """Find records that somebody has read, and that were not committed by then.

    Only some topics promise this: their readers never see a record that could be lost.
    """
    seen: dict[tuple[Place, int], Read] = {}
    transactions = transactions_by_value(history)
    for one in history.reads:
        if history.topic(one.place).keeps_reads:
            known = seen.setdefault((one.place, one.offset), one)
            if known.value != one.value:
                yield _divergence("unstable", f"{one.place} at {one.offset}", known, one)
    for (place, offset), one in seen.items():
        if place not in final.by_offset:
            continue
        now = final.by_offset[place].get(offset)
        if now == one.value:
            continue
        may_be_aborted = (place, one.value) in transactions and not one.is_committed
        may_lack = final.may_lack(place, one.value, offset) or (
            may_be_aborted and history.topic(place).is_compacted
        )
        if now is not None or not may_lack:
            said = f"{place} at {offset}: {one.reader} read {one.value}, in the end it has {now}"
            yield Problem("unstable", said, place, (offset,), (one,))


def find_lowered(history: History) -> Iterator[Problem]:
    """Find log start offsets that are lower in the end, or higher than anybody has asked for.

    A leader that fails before it has answered a deletion may take it back.
    """
    asked: dict[Place, Deletion] = {}
    for deletion in history.deletions:
        known = asked.setdefault(deletion.place, deletion)
        if deletion.offset > known.offset:
            asked[deletion.place] = deletion
    for one in history.starts:
        place, final = one.place, history.final_starts.get(one.place)
        keeps = history.topic(place).keeps_deletions
        if one.is_promise and keeps and final is not None and one.offset > final:
            said = f"{place} began at {one.offset}, in the end at {final}"
            yield Problem("start", said, place, (one.offset, final), (one,))
        most = asked.get(place)
        most_offset = most.offset if most else 0
        if one.offset > most_offset and not history.topic(place).is_retained:
            said = f"{place} began at {one.offset}, asked for was {most_offset}"
            events = (most, one) if most else (one,)
            yield Problem("start", said, place, (one.offset, most_offset), events)
    for deletion in history.deletions:
        place, final = deletion.place, history.final_starts.get(deletion.place)
        is_kept = deletion.outcome is Outcome.DONE and history.topic(place).keeps_deletions
        if is_kept and final is not None and deletion.offset > final:
            said = f"{place} begins at {final}, deleted was up to {deletion.offset}"
            yield Problem("start", said, place, (final, deletion.offset), (deletion,))


def find_lowered_watermarks(history: History) -> Iterator[Problem]:
    """Find high watermarks that go back.

    Within an epoch one broker never gives a lower one to a request that came after an answer.
    Across epochs, a topic that keeps reads begins where the epochs before have ended: their
    leaders commit nothing any more. Of unknown epochs, such a topic never gives a lower one to
    the same reader, which reads on from one leader to the next and never goes back to a former.
    """
    by_epoch: defaultdict[tuple[Place, int], list[Watermark]] = defaultdict(list)
    by_reader: defaultdict[tuple[Place, str], list[Watermark]] = defaultdict(list)
    for one in history.watermarks:
        if one.epoch >= 0:
            by_epoch[one.place, one.epoch].append(one)
        elif one.node_id < 0 and history.topic(one.place).keeps_reads:
            by_reader[one.place, one.client].append(one)
    for some in by_reader.values():
        yield from _lowered_within(some)
    highest: dict[Place, Watermark] = {}
    for (place, _), some in sorted(by_epoch.items(), key=lambda item: item[0]):
        yield from _lowered_within(some)
        of_leader = [one for one in some if one.node_id < 0]
        if not history.topic(place).keeps_reads or not of_leader:
            continue
        low = min(of_leader, key=lambda one: one.offset)
        high = highest.get(place)
        if high is not None and low.offset < high.offset:
            yield _fall(high, low)
        top = max(of_leader, key=lambda one: one.offset)
        if high is None or top.offset > high.offset:
            highest[place] = top


def _lowered_within(some: list[Watermark]) -> Iterator[Problem]:
    ends = sorted(some, key=lambda one: one.done_at or one.at)
    highest: dict[int, Watermark] = {}
    count = 0
    for one in sorted(some, key=lambda one: one.at):
        while count < len(ends) and (ends[count].done_at or ends[count].at) < one.at:
            end = ends[count]
            if end.node_id not in highest or end.offset > highest[end.node_id].offset:
                highest[end.node_id] = end
            count += 1
        before = highest.get(one.node_id)
        if before is not None and one.offset < before.offset:
            yield _fall(before, one)


def _fall(high: Watermark, low: Watermark) -> Problem:
    first, then = (
        f"{one.client} found {one.offset}" + (f" in epoch {one.epoch}" if one.epoch >= 0 else "")
        for one in (high, low)
    )
    said = f"{low.place}: {first}, then {then}"
    return Problem("watermark", said, low.place, (high.offset, low.offset), (high, low))
