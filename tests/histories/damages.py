"""Damages of sound histories: each breaks one promise, which the checks must find.

A damage changes a history that a perfect cluster has played (`perfect`), and returns the offsets
concerned, or None where the history has nothing that it could damage.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from tests.histories.checks.final import is_acknowledged, may_be_there
from tests.histories.history import (
    Acknowledgement,
    Append,
    History,
    Led,
    OffsetCommit,
    OffsetFetch,
    Outcome,
    Place,
    Read,
    ShareDelivery,
    Watermark,
    key_of,
)
from tests.histories.perfect import LOCAL, RETENTION_S, SHARED, TABLE

T = TypeVar("T")
Damage = Callable[[History, random.Random], tuple[int, ...] | None]
_PLAIN_PLACES = (LOCAL, SHARED)


def _draw(source: random.Random, some: Iterable[T]) -> T | None:
    found = list(some)
    return source.choice(found) if found else None


def _remove(history: History, place: Place, values: set[str]) -> None:
    for final in (history.final, history.final_committed):
        final[place][:] = [one for one in final[place] if one.value not in values]


def _acknowledged(history: History, place: Place) -> dict[str, tuple[Append, int]]:
    """Return the acknowledged records that are there in the end, with their offsets."""
    there = {one.value for one in history.final_committed[place]}
    return {
        value: (append, append.offset + at)
        for append in history.appends
        if append.place == place and is_acknowledged(append) and append.offset >= 0
        for at, value in enumerate(append.values)
        if value in there
    }


def lose(history: History, source: random.Random) -> tuple[int, ...] | None:
    """An acknowledged record is gone."""
    place = source.choice(_PLAIN_PLACES)
    found = _draw(source, _acknowledged(history, place).items())
    if found is None:
        return None
    _remove(history, place, {found[0]})
    return (found[1][1],)


def repeat(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A record is there again."""
    place = source.choice(_PLAIN_PLACES)
    one = _draw(source, history.final_committed[place])
    if one is None:
        return None
    again = replace(one, offset=history.final_ends[place])
    for final in (history.final, history.final_committed):
        final[place].append(again)
    return one.offset, again.offset


def swap(history: History, source: random.Random) -> tuple[int, ...] | None:
    """Two records of an idempotent producer are in the wrong order."""
    of_one = [one for one in history.final[SHARED] if one.value.startswith("i0-")]
    if len(of_one) < 2:
        return None
    at = source.randrange(len(of_one) - 1)
    first, second = of_one[at], of_one[at + 1]
    values = {first.offset: second.value, second.offset: first.value}
    for final in (history.final, history.final_committed):
        final[SHARED][:] = [
            replace(one, value=values.get(one.offset, one.value)) for one in final[SHARED]
        ]
    return first.offset, second.offset


def displace(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A producer was given another offset."""
    place = source.choice(_PLAIN_PLACES)
    found = _draw(source, _acknowledged(history, place).values())
    if found is None:
        return None
    found[0].offset += 100
    return (found[1] + 100, found[1])


def _diverge(history: History, source: random.Random, place: Place) -> tuple[int, ...] | None:
    reads = [one for one in history.reads if one.place == place]
    one = _draw(source, reads)
    other = _draw(source, (other for other in reads if one and other.value != one.value))
    if one is None or other is None:
        return None
    history.reads.append(replace(one, reader="other", value=other.value, is_committed=False))
    return (one.offset,)


def diverge(history: History, source: random.Random) -> tuple[int, ...] | None:
    """Two readers see different records at one offset of a local topic, in one epoch."""
    return _diverge(history, source, LOCAL)


def unsettle(history: History, source: random.Random) -> tuple[int, ...] | None:
    """Two readers see different records at one offset of a shared topic."""
    return _diverge(history, source, SHARED)


def forget(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A record of a shared topic that somebody has read is gone, though nobody was answered."""
    there = {one.value for one in history.final[SHARED]}
    unanswered = {
        value
        for one in history.appends
        if one.outcome is Outcome.UNKNOWN and one.place == SHARED
        for value in one.values
        if value in there
    }
    start = history.final_starts[SHARED]
    one = _draw(source, (
        one
        for one in history.reads
        if one.value in unanswered and one.place == SHARED and one.offset >= start
        and one.reader != "final"
    ))  # fmt: skip
    if one is None:
        return None
    _remove(history, SHARED, {one.value})
    return (one.offset,)


def _of_transactions(history: History, outcome: Outcome) -> list[Append]:
    return [
        one
        for one in history.appends
        if one.transaction is not None and one.transaction.outcome is outcome and one.offset >= 0
    ]


def show_aborted(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A reader of committed records gets one of an aborted transaction."""
    append = _draw(source, _of_transactions(history, Outcome.UNDONE))
    if append is None:
        return None
    _read(history, append, history.at + 1)
    return (append.offset,)


def show_early(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A reader of committed records gets one before its commit was asked for."""
    append = _draw(source, _of_transactions(history, Outcome.DONE))
    if append is None:
        return None
    assert append.transaction is not None
    _read(history, append, (append.transaction.commit_at or 0) - 1)
    return (append.offset,)


def _read(history: History, append: Append, at: int) -> None:
    where, value = (append.place, append.offset), append.values[0]
    history.reads.append(Read("other", *where, 0, value, True, at=at))


def tear(history: History, source: random.Random) -> tuple[int, ...] | None:
    """Of a transaction a record is missing."""
    there = {(p, one.value) for p, some in history.final_committed.items() for one in some}
    parts: dict[int, list[tuple[Append, int, str]]] = {}
    for append in _of_transactions(history, Outcome.DONE):
        for at, value in enumerate(append.values):
            if (append.place, value) in there:
                parts.setdefault(id(append.transaction), []).append((append, at, value))
    found = [
        one
        for part in parts.values()
        if len(part) > 1
        for one in part
        if one[0].place in _PLAIN_PLACES
    ]
    torn = _draw(source, found)
    if torn is None:
        return None
    append, at, value = torn
    _remove(history, append.place, {value})
    return (append.offset + at,)


def _latest(history: History) -> dict[bytes, tuple[Append, int, str]]:
    """Return the latest acknowledged record of each key, where no other may be later."""
    found: dict[bytes, tuple[Append, int, str]] = {}
    for value, (append, offset) in _acknowledged(history, TABLE).items():
        if key_of(value) not in found or found[key_of(value)][1] < offset:
            found[key_of(value)] = append, offset, value
    for append in history.appends:
        may_be_later = may_be_there(append) and not is_acknowledged(append)
        if append.place == TABLE and may_be_later:
            for value in append.tombstones:
                found.pop(key_of(value), None)
    return found


def _without(history: History, key: bytes, offset: int) -> None:
    """Remove the records of a key from an offset on."""
    gone = {
        one.value
        for one in history.final[TABLE]
        if key_of(one.value) == key and one.offset >= offset
    }
    _remove(history, TABLE, gone)


def clean_too_much(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A key of a compacted topic lacks its latest value."""
    found = _draw(source, (
        one for one in _latest(history).values() if one[2] not in one[0].tombstones
    ))  # fmt: skip
    if found is None:
        return None
    _without(history, key_of(found[2]), found[1])
    return (found[1],)


def clean_too_early(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A tombstone is gone before its time."""
    now_s = max(one.done_s for one in history.scans)
    found = _draw(source, (
        one
        for one in _latest(history).values()
        if one[2] in one[0].tombstones and now_s < one[0].time_s + RETENTION_S
    ))  # fmt: skip
    if found is None:
        return None
    _without(history, key_of(found[2]), found[1])
    return (found[1],)


def undelete(history: History, source: random.Random) -> tuple[int, ...] | None:
    """Records are there that were deleted."""
    promises = [one for one in history.starts if one.is_promise and one.offset > 0]
    one = _draw(source, promises)
    if one is None:
        return None
    history.final_starts[one.place] = one.offset - 1
    return (one.offset,)


def delete_more(history: History, source: random.Random) -> tuple[int, ...] | None:
    """More records are gone than anybody has deleted."""
    one = _draw(source, history.starts)
    if one is None:
        return None
    history.starts.append(replace(one, offset=1_000))
    return (1_000,)


def lower_watermark(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A high watermark goes back within an epoch."""
    one = _draw(source, (one for one in history.watermarks if one.offset and one.epoch >= 0))
    if one is None:
        return None
    history.add(Watermark("other", one.place, one.epoch, one.offset - 1))
    return (one.offset - 1,)


def lower_across_epochs(history: History, source: random.Random) -> tuple[int, ...] | None:
    """The high watermark of a shared topic is lower in a later epoch."""
    of = [
        one
        for one in history.watermarks
        if one.place == SHARED and one.offset and one.epoch >= 0
    ]
    one = _draw(source, of)
    if one is None:
        return None
    later = max(one.epoch for one in of) + 1
    history.add(Watermark("other", SHARED, later, one.offset - 1))
    return (one.offset - 1,)


def lower_for_reader(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A reader that knows no epochs finds a lower high watermark of a shared topic."""
    found = _draw(source, (
        one
        for one in history.watermarks
        if one.place == SHARED and one.offset and one.epoch < 0
    ))  # fmt: skip
    if found is None:
        return None
    history.add(Watermark(found.client, SHARED, -1, found.offset - 1))
    return (found.offset - 1,)


def _answered(history: History) -> list[OffsetCommit]:
    return [one for one in history.commits if one.outcome is Outcome.DONE]


def take_back_commit(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A group finds less than it has committed."""
    latest: dict[tuple[str, Place], OffsetCommit] = {}
    for one in _answered(history):
        latest[one.group, one.place] = one
    unknown = {
        (one.group, one.place) for one in history.commits if one.outcome is Outcome.UNKNOWN
    }
    found = _draw(source, (
        one for key, one in latest.items() if one.offset > 0 and key not in unknown
    ))  # fmt: skip
    if found is None:
        return None
    history.add(OffsetFetch(found.group, found.place, -1))
    return (found.offset,)


def find_uncommitted(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A group finds an offset that nobody has committed."""
    one = _draw(source, history.commits)
    if one is None:
        return None
    history.add(OffsetFetch(one.group, one.place, 1_000))
    return (1_000,)


def commit_beyond(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A group has read records beyond the log's end."""
    offset = history.final_ends[SHARED] + source.randint(1, 3)
    commit = OffsetCommit("other", SHARED, offset, outcome=Outcome.DONE, is_position=True)
    history.add(commit)
    return (offset,)


def settle_twice(history: History, source: random.Random) -> tuple[int, ...] | None:
    """Two members accept a record, and both are answered."""
    one = _draw(source, (
        one
        for one in history.acks
        if one.kind is not Acknowledgement.RELEASE and one.outcome is Outcome.DONE
    ))  # fmt: skip
    if one is None:
        return None
    history.acks.append(replace(one, member="other", kind=Acknowledgement.ACCEPT))
    return (one.first,)


def deliver_again(history: History, source: random.Random) -> tuple[int, ...] | None:
    """A record is delivered after it was accepted."""
    one = _draw(source, (
        one
        for one in history.acks
        if one.kind is Acknowledgement.ACCEPT and one.outcome is Outcome.DONE
    ))  # fmt: skip
    if one is None:
        return None
    history.add(ShareDelivery(one.group, "other", one.place, one.first, "i0-0"))
    return (one.first,)


def lead_twice(history: History, source: random.Random) -> tuple[int, ...] | None:
    """Two brokers lead in one epoch."""
    one = _draw(source, history.led)
    if one is None:
        return None
    history.add(Led(one.partition, one.epoch, one.node_id + 1, one.topic))
    return ()


# By damage: the kind under which it must be found.
DAMAGES: dict[Damage, str] = {
    lose: "lost",
    repeat: "twice",
    swap: "order",
    displace: "offsets",
    diverge: "offsets",
    unsettle: "unstable",
    forget: "unstable",
    show_aborted: "aborted",
    show_early: "aborted",
    tear: "atomic",
    clean_too_much: "latest",
    clean_too_early: "tombstones",
    undelete: "start",
    delete_more: "start",
    lower_watermark: "watermark",
    lower_across_epochs: "watermark",
    lower_for_reader: "watermark",
    take_back_commit: "group",
    find_uncommitted: "group",
    commit_beyond: "group",
    settle_twice: "shares",
    deliver_again: "shares",
    lead_twice: "leaders",
}
