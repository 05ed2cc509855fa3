"""The events around a problem, as bars in lanes: one for each producer, reader, group, broker."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.histories.checks.problem import Problem
from tests.histories.history import (
    Append,
    Deletion,
    Disruption,
    Event,
    History,
    Led,
    OffsetCommit,
    OffsetFetch,
    Outcome,
    Place,
    Read,
    Scan,
    ShareAck,
    ShareDelivery,
    Start,
    TopicChange,
    Transaction,
    Watermark,
)

EVENTS_MAX = 160
# Of other partitions, events count as so much farther away.
_FAR = 4
_CONCERNED_MAX = 60
_VALUES_MAX = 12
_ALWAYS = frozenset({
    "append", "transaction", "read", "scan", "deletion", "commit", "fetch", "delivery",
    "acknowledgement", "trouble", "topic",
})  # fmt: skip
_KINDS = {"watermark": "high watermark", "start": "log start"}


@dataclass(slots=True)
class Bar:
    """An operation, from its beginning to its end; without one if that is unknown."""

    lane: str
    kind: str
    label: str
    detail: str
    begin: int
    end: int | None
    outcome: str
    time_s: float
    end_s: float
    place: Place | None = None
    is_concerned: bool = False
    # It is about another partition than the problem.
    is_far: bool = False


@dataclass
class Window:
    """The bars around a problem, by their beginnings."""

    bars: list[Bar]
    # Beginnings of bars that were left out.
    left_out: list[int] = field(default_factory=list)

    def moments(self) -> list[int]:
        """Return all beginnings and ends, in order."""
        ends = {one.end for one in self.bars if one.end is not None}
        return sorted({one.begin for one in self.bars} | ends)


def find_window(history: History, problem: Problem) -> Window:
    """Return the bars of the events that a problem concerns, and those next to them."""
    concerned = {id(one) for one in problem.events}
    # Each answer has these: they are of interest only where they are wrong.
    shown = _ALWAYS | {_KINDS.get(problem.kind, "")}
    bars = [
        one for one in _bars(history, concerned) if one.is_concerned or one.kind in shown
    ]
    for one in bars:
        one.is_far = None not in (problem.place, one.place) and one.place != problem.place
    spans = list(_leaderships(history, problem.place, concerned))
    chosen = [one for one in bars if one.is_concerned][-_CONCERNED_MAX:]
    moments = [one.end or one.begin for one in chosen] or [problem.at or history.at]
    moments += [one.begin for one in chosen]

    def distance(bar: Bar) -> int:
        near = min(abs(bar.begin - one) for one in moments)
        return near * _FAR if bar.is_far else near

    others = [one for one in bars if not one.is_concerned]
    chosen += heapq.nsmallest(EVENTS_MAX - len(chosen), others, key=distance)
    first, last = min(one.begin for one in chosen), max(one.end or one.begin for one in chosen)
    for span in spans:
        if span.is_concerned or (span.begin <= last and (span.end is None or span.end >= first)):
            # They reach beyond the window at most: it ends where the other bars do.
            span.end = min(last, span.end or last)
            span.begin = min(max(span.begin, first), span.end)
            chosen.append(span)
    taken = {id(one) for one in chosen}
    left_out = sorted(one.begin for one in bars if id(one) not in taken)
    return Window(sorted(chosen, key=lambda one: (one.begin, one.lane)), left_out)


def _bars(history: History, concerned: set[int]) -> Iterator[Bar]:
    scanned = {id(one) for scan in history.scans for one in scan.reads}
    answers: defaultdict[tuple[str, Place, int], list[Read]] = defaultdict(list)
    last = [one for some in (history.final, history.final_committed) for one in some.values()]
    for reads in (history.reads, *last):
        for read in reads:
            if id(read) not in scanned:
                scanned.add(id(read))
                answers[read.reader, read.place, read.at].append(read)
    for some in answers.values():
        yield _of_reads(some, concerned)
    for event in history.events():
        if isinstance(event, Scan):
            yield _of_scan(event, concerned)
        elif not isinstance(event, Read | Led):
            bar = _bar(event)
            if bar is not None:
                bar.is_concerned = id(event) in concerned
                yield bar


def _of_reads(reads: list[Read], concerned: set[int]) -> Bar:
    one = reads[0]
    return Bar(
        one.reader, "read", _range(reads[0].offset, reads[-1].offset), _listed(reads, concerned),
        one.at, one.at, Outcome.DONE.value, one.time_s, one.time_s, one.place,
        any(id(one) in concerned for one in reads),
    )  # fmt: skip


def _of_scan(scan: Scan, concerned: set[int]) -> Bar:
    is_concerned = id(scan) in concerned or any(id(one) in concerned for one in scan.reads)
    return Bar(
        scan.reader, "scan", f"scan {_range(scan.start, scan.end - 1)}",
        _listed(scan.reads, concerned), scan.at, scan.done_at, Outcome.DONE.value, scan.time_s,
        scan.done_s, scan.place, is_concerned,
    )  # fmt: skip


def _listed(reads: list[Read], concerned: set[int]) -> str:
    """Return the records of an answer: those concerned, and the first ones."""
    marked = [one for one in reads if id(one) in concerned]
    others = [one for one in reads if id(one) not in concerned]
    shown = sorted([*marked, *others[:_VALUES_MAX]], key=lambda one: one.offset)
    text = ", ".join(f"{one.offset}: {one.value}" for one in shown)
    isolation = "" if not reads or reads[0].is_committed else " (uncommitted, too)"
    rest = len(reads) - len(shown)
    return text + (f" and {rest} more" if rest > 0 else "") + isolation


def _range(first: int, last: int) -> str:
    return f"{first}" if first >= last else f"{first}…{last}"


def _bar(event: Event) -> Bar | None:
    """Return the bar of an event, None for one that is not drawn."""
    outcome: Outcome = getattr(event, "outcome", Outcome.DONE)
    place: Place | None = getattr(event, "place", None)
    found = _words(event)
    if found is None:
        return None
    lane, kind, label, detail = found
    end = event.done_at if outcome is not Outcome.UNKNOWN else None
    if end is None and outcome is not Outcome.UNKNOWN:
        end = event.at
    times = event.time_s, event.done_s or event.time_s
    return Bar(lane, kind, label, detail, event.at, end, outcome.value, *times, place)


def _words(event: Event) -> tuple[str, str, str, str] | None:
    """Return the lane, the kind, the label and the details of an event."""
    match event:
        case Append():
            first, last = event.values[0], event.values[-1].rpartition("-")[2]
            short = first if len(event.values) == 1 else f"{first}…{last}"
            where = f"→{event.offset}" if event.offset >= 0 else "→?"
            detail = ", ".join(
                f"{one} (tombstone)" if one in event.tombstones else one for one in event.values
            )
            of = event.transaction
            detail += f", transaction {of.number}" if of else ""
            detail += f", answered {event.offset}" if event.offset >= 0 else ""
            return event.producer, "append", f"{short}{where}", detail
        case Transaction():
            detail = "its commit was never asked for"
            if event.commit_at is not None:
                detail = f"its commit was asked for at {event.commit_at}"
            return event.producer, "transaction", f"transaction {event.number}", detail
        case Watermark():
            where = "" if event.node_id < 0 else f", broker {event.node_id}"
            detail = f"{event.offset} in epoch {event.epoch}{where}"
            return event.client, "high watermark", f"hw {event.offset}", detail
        case Start():
            return "log starts", "log start", f"{event.offset}", f"begins at {event.offset}"
        case Deletion():
            return "deletions", "deletion", f"<{event.offset}", f"up to {event.offset}"
        case OffsetCommit():
            detail = f"{event.offset}"
            detail += f", transaction {event.transaction.number}" if event.transaction else ""
            return f"group {event.group}", "commit", f"commit {event.offset}", detail
        case OffsetFetch():
            return f"group {event.group}", "fetch", f"found {event.offset}", f"{event.offset}"
        case _:
            return _other_words(event)


def _other_words(event: Event) -> tuple[str, str, str, str] | None:
    match event:
        case ShareDelivery():
            detail = f"{event.offset}: {event.value}, delivery {event.count}, {event.group}"
            return event.member, "delivery", f"got {event.offset}", detail
        case ShareAck():
            what, where = event.kind.value, _range(event.first, event.last)
            detail = f"{what} {where}, {event.group}"
            return event.member, "acknowledgement", f"{what} {where}", detail
        case Disruption():
            lane = f"broker {event.node_id}" if event.node_id >= 0 else "all brokers"
            return lane, "trouble", event.name, event.name
        case TopicChange():
            what = f"{event.kind} {event.topic} {event.value or ''}".strip()
            return "admin", "topic", what, what
        case _:
            return None


def _leaderships(
    history: History, place: Place | None, concerned: set[int]
) -> Iterator[Bar]:
    """Iterate over the times in which brokers led the partition, as far as anybody saw it.

    Other partitions' are left out, but for a problem that has no partition.
    """
    by_partition: defaultdict[tuple[str, int], dict[tuple[int, int], Led]] = defaultdict(dict)
    for one in history.led:
        name = one.topic or one.partition[0]
        if place is None or place == (name, one.partition[1]) or id(one) in concerned:
            known = by_partition[one.partition].setdefault((one.epoch, one.node_id), one)
            if id(one) in concerned and id(known) not in concerned:
                by_partition[one.partition][one.epoch, one.node_id] = one
    for some in by_partition.values():
        led = [some[key] for key in sorted(some)]
        for at, one in enumerate(led):
            later = (other.at for other in led[at + 1 :] if other.epoch > one.epoch)
            name = f"{one.topic or one.partition[0][:8]}/{one.partition[1]}"
            yield Bar(
                f"broker {one.node_id}", "leader", f"leads {name}, epoch {one.epoch}",
                f"{name} in epoch {one.epoch}", one.at, next(later, None), "led", one.time_s, 0.0,
                (one.topic or one.partition[0], one.partition[1]), id(one) in concerned,
            )  # fmt: skip
