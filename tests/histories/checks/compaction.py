"""Compacted topics: the latest value of each key, and tombstones, by readers from the start.

    log      0 V k1   1 V k2   2 T k1             T: a tombstone
    scan     .        1        2                  right: each key has its latest record
             .        .        2                  latest: k2 lacks its value
             .        1        .                  right once delete.retention.ms has passed
                                                  since the producer began to send T, else
                                                  tombstones: it is gone too early
             0        1        .                  tombstones, if T was gone before: V is back

A record may be gone as soon as a later one of its key may have been there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.histories.checks.final import is_acknowledged, may_be_there, offset_of
from tests.histories.checks.problem import Problem
from tests.histories.history import Append, History, Place, Read, Scan, key_of

Key = tuple[Place, bytes]
_NEVER = 1 << 63


@dataclass(slots=True)
class _Record:
    """A record of a batch; its offset is -1 if unknown."""

    append: Append
    value: str
    offset: int

    @property
    def is_tombstone(self) -> bool:
        return self.value in self.append.tombstones


def find_obsolete(history: History) -> Iterator[Problem]:
    """Find readers from the start that lack the latest value of a key, or its tombstone."""
    known = _Known(history)
    appends = [one for one in history.appends if history.topic(one.place).is_compacted]
    done = sorted((one for one in appends if is_acknowledged(one)), key=_settled_at)
    for append in appends:
        if append.tombstones and may_be_there(append):
            known.add_tombstones(append)
    count = 0
    for scan in _scans(history):
        while count < len(done) and _settled_at(done[count]) < scan.at:
            known.add(done[count])
            count += 1
        yield from known.problems(scan)


def _settled_at(append: Append) -> int:
    """Return the moment from which an acknowledged batch was committed."""
    of = append.transaction
    return (of.done_at if of else append.done_at) or 0


def _scans(history: History) -> list[Scan]:
    """Return the scans of compacted topics by their beginnings, the last readers' among them."""
    found = [one for one in history.scans if history.topic(one.place).is_compacted]
    ended = {id(one.reads) for one in found}
    for place, reads in history.final_committed.items():
        if history.topic(place).is_compacted and id(reads) not in ended:
            now = history.at + 1
            time_s = max((one.time_s for one in reads), default=0.0)
            start, end = history.final_starts.get(place, 0), history.final_ends.get(place, _NEVER)
            found.append(Scan(
                "the last reader", place, start, end, True, reads,
                at=now, done_at=now, time_s=time_s, done_s=time_s,
            ))  # fmt: skip
    return sorted(found, key=lambda one: one.at)


@dataclass
class _Known:
    """The records that were acknowledged up to a moment."""

    history: History
    latest: defaultdict[Place, dict[bytes, _Record]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    # All tombstones that may be there at some time.
    tombstones: defaultdict[Key, list[_Record]] = field(default_factory=lambda: defaultdict(list))
    # Tombstones that a scan has not found any more, rightly.
    gone: dict[Key, tuple[_Record, Scan]] = field(default_factory=dict)

    def add(self, append: Append) -> None:
        """Note a batch that was acknowledged."""
        of_place = self.latest[append.place]
        for at, value in enumerate(append.values):
            key, offset = key_of(value), offset_of(append, at)
            before = of_place.get(key)
            if before is None or offset > before.offset:
                of_place[key] = _Record(append, value, offset)

    def add_tombstones(self, append: Append) -> None:
        """Note the tombstones of a batch that was sent."""
        for at, value in enumerate(append.values):
            if value in append.tombstones:
                record = _Record(append, value, offset_of(append, at))
                self.tombstones[append.place, key_of(value)].append(record)

    def problems(self, scan: Scan) -> Iterator[Problem]:
        """Find keys whose latest records a scan lacks."""
        seen: dict[bytes, Read] = {}
        for one in scan.reads:
            seen[key_of(one.value)] = one
        for key, record in self.latest[scan.place].items():
            found = seen.get(key)
            if found is not None and found.offset >= record.offset:
                continue
            is_outside = not scan.start <= record.offset < scan.end
            if is_outside if record.offset >= 0 else scan.start > 0:
                continue
            if record.is_tombstone:
                problem = self._gone(scan, key, record, found)
            elif self._may_be_deleted(scan, key, record):
                problem = None
            else:
                problem = _lacking("latest", scan, key, record, found)
            if problem is not None:
                yield problem

    def _gone(self, scan: Scan, key: bytes, record: _Record, found: Read | None) -> Problem | None:
        """Return the problem of a tombstone that is gone, None if it may be."""
        if not self._is_old(scan, record):
            return _lacking("tombstones", scan, key, record, found)
        at_first = self.gone.setdefault((scan.place, key), (record, scan))
        if at_first[0] is not record:
            self.gone[scan.place, key] = record, scan
        elif found is not None and (at_first[1].done_at or 0) < scan.at:
            said = (
                f"{scan.reader} read {found.value} of {scan.place}, which {record.value} at "
                f"{record.offset} has deleted, and which {at_first[1].reader} missed before"
            )
            offsets = found.offset, record.offset
            events = record.append, at_first[1], scan, found
            return Problem("tombstones", said, scan.place, offsets, events)
        return None

    def _is_old(self, scan: Scan, record: _Record) -> bool:
        retention_s = self.history.topic(scan.place).delete_retention_s
        return scan.done_s >= record.append.time_s + retention_s

    def _may_be_deleted(self, scan: Scan, key: bytes, record: _Record) -> bool:
        """Return whether a later tombstone has deleted a record, and may be gone itself."""
        return any(
            (one.offset < 0 or one.offset > record.offset)
            and one.append.at < (scan.done_at or scan.at)
            and self._is_old(scan, one)
            for one in reversed(self.tombstones[scan.place, key])
        )


def _lacking(kind: str, scan: Scan, key: bytes, record: _Record, found: Read | None) -> Problem:
    last = f"{found.value} at {found.offset}" if found else "nothing"
    said = (
        f"{scan.reader} lacks {record.value} of {scan.place} at {record.offset}, the latest of "
        f"key {key.decode()} that was acknowledged: it has {last}"
    )
    events = (record.append, scan, *([found] if found else []))
    offsets = (record.offset, *([found.offset] if found else []))
    return Problem(kind, said, scan.place, offsets, events)
