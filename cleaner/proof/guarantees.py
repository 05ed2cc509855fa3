"""The four guarantees of log compaction, proved over a log's records before and after.

1. A consumer that keeps up with the head sees every record: no record at or after the first
   uncleanable offset has changed, and no record younger than min.compaction.lag.ms is gone.
2. Order never changes.
3. Offsets never change: each remaining record is identical to the one at its offset before.
4. A reader from the start sees at least the final state of every key, and every tombstone
   that is younger than delete.retention.ms.

The proofs read iterators of records, oldest first, as a consumer does. The first three need no
memory; the fourth keeps each key and its latest offset, and reads the log in several rounds when
there are more keys than KEYS_MAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from odradek.cleaner.rules.key_tokens import key_of, token_of
from odradek.dataclass import dataclass
from odradek.protocol.batches import Record

# The keys in memory at once: each takes some 150 bytes, and its own size or that of its token.
KEYS_MAX = 2_000_000

HEAD_UNCHANGED = "a consumer that keeps up with the head sees every record"
ORDER_UNCHANGED = "order never changes"
OFFSETS_UNCHANGED = "offsets never change"
FINAL_STATE = (
    "a reader from the start sees the final state of every key, "
    "and every tombstone younger than delete.retention.ms"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a consumer sees it."""

    record: Record
    # Whether read_committed consumers see it, by the present knowledge of transactions.
    is_committed: bool
    delete_horizon_ms: int | None = None  # the time from which it may go, as a tombstone


@dataclass(frozen=True, slots=True)
class Bounds:
    """The part of a log to compare, and the limits of the cleaning."""

    start_offset: int  # the log start offset: records before it were deleted, not cleaned away
    stable_offset: int  # the last stable offset before: transactions from here on are undecided
    end_offset: int  # the log end offset before: records after it were appended since
    first_dirty_offset: int
    first_uncleanable_offset: int
    min_lag_ms: int
    now_ms: int  # the time of the cleaning


@dataclass(frozen=True, slots=True)
class Violation:
    """The first record found that breaks a guarantee, and how."""

    offset: int
    key: bytes | None
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one statement to prove."""

    name: str
    examined: int  # the number of records, or of the items that `of` names
    violation: Violation | None
    of: str = "records"


@dataclass(slots=True)
class _Tally:
    """A finding that is being counted."""

    name: str
    examined: int = 0
    violation: Violation | None = None

    def violate(self, record: Record, text: str) -> None:
        if self.violation is None:
            self.violation = Violation(record.offset, record.key, text)

    def finding(self) -> Finding:
        return Finding(self.name, self.examined, self.violation)


def compare(before: Iterable[Seen], after: Iterable[Seen], bounds: Bounds) -> list[Finding]:
    """Prove the first three guarantees in one pass over both."""
    head, order, offsets = (
        _Tally(name) for name in (HEAD_UNCHANGED, ORDER_UNCHANGED, OFFSETS_UNCHANGED)
    )
    was = _within(before, bounds)
    one = next(was, None)
    latest = -1
    for left in _within(after, bounds):
        record = left.record
        order.examined += 1
        if record.offset <= latest:
            order.violate(record, f"it comes after the record at offset {latest}")
            continue
        latest = record.offset
        while one is not None and one.record.offset < latest:
            _check_gone(one, bounds, head)
            one = next(was, None)
        offsets.examined += 1
        if one is None or one.record.offset > latest:
            offsets.violate(record, "there was no record at this offset")
            continue
        _check_same(one, left, bounds, offsets)
        if latest >= bounds.first_uncleanable_offset:
            head.examined += 1
            if (one.record, one.delete_horizon_ms) != (record, left.delete_horizon_ms):
                head.violate(record, "it has changed, past the first uncleanable offset")
        one = next(was, None)
    while one is not None:
        _check_gone(one, bounds, head)
        one = next(was, None)
    return [head.finding(), order.finding(), offsets.finding()]


def final_state(
    before: Callable[[], Iterable[Seen]],
    after: Callable[[], Iterable[Seen]],
    bounds: Bounds,
    keys_max: int = KEYS_MAX,
) -> Finding:
    """Prove the fourth guarantee, in as many rounds as the limit on the keys requires.

    The latest record of a key must exist; an expired tombstone may be gone when no record that
    it deleted is left.
    """
    tally = _Tally(FINAL_STATE)
    turn, rounds = 0, 1
    while turn < rounds:
        latest = _latest(before(), bounds, turn, rounds, keys_max)
        if latest is None:  # more keys than expected: begin again with smaller shares
            tally, turn, rounds = _Tally(FINAL_STATE), 0, 2 * rounds
            continue
        _check_state(after(), bounds, turn, rounds, latest, tally)
        turn += 1
    return tally.finding()


def _latest(
    before: Iterable[Seen], bounds: Bounds, turn: int, rounds: int, keys_max: int
) -> dict[bytes, tuple[int, bool]] | None:
    """Return the offset of each key's latest record, and whether it may be gone.

    None when there are too many keys.
    """
    latest: dict[bytes, tuple[int, bool]] = {}
    for record, seen in _committed(before, bounds, turn, rounds):
        assert record.key is not None
        horizon_ms = seen.delete_horizon_ms
        may_go = record.value is None and horizon_ms is not None and horizon_ms <= bounds.now_ms
        latest[token_of(record.key)] = record.offset, may_go
        if len(latest) > keys_max:
            return None
    return latest


def _check_state(
    after: Iterable[Seen],
    bounds: Bounds,
    turn: int,
    rounds: int,
    latest: dict[bytes, tuple[int, bool]],
    tally: _Tally,
) -> None:
    older: dict[bytes, int] = {}  # remaining records of keys whose tombstone may be gone
    for record, _ in _committed(after, bounds, turn, rounds):
        assert record.key is not None
        tally.examined += 1
        key = token_of(record.key)
        offset, may_go = latest.get(key, (-1, False))
        if record.offset == offset:
            del latest[key]
        elif offset < 0:
            tally.violate(record, "it is not the key's final state, which came before")
        elif may_go:
            older[key] = record.offset
    for key, (offset, may_go) in latest.items():
        if not may_go:
            tally.violate(Record(offset, -1, key_of(key), None), "the key's latest record is gone")
        elif key in older:
            cause = f"its tombstone is gone, and the record at offset {older[key]} is not"
            tally.violate(Record(offset, -1, key_of(key), None), cause)


def _committed(
    seen: Iterable[Seen], bounds: Bounds, turn: int, rounds: int
) -> Iterator[tuple[Record, Seen]]:
    """Yield the committed records of the keys whose turn it is."""
    for one in _within(seen, bounds):
        record = one.record
        if record.key is None or not one.is_committed or record.offset >= bounds.stable_offset:
            continue
        # Python's hash is secret: a client cannot choose keys that all have the same turn.
        if rounds == 1 or hash(record.key) % rounds == turn:
            yield record, one


def _within(seen: Iterable[Seen], bounds: Bounds) -> Iterator[Seen]:
    for one in seen:
        if bounds.start_offset <= one.record.offset < bounds.end_offset:
            yield one


def _check_gone(gone: Seen, bounds: Bounds, head: _Tally) -> None:
    record = gone.record
    head.examined += 1
    if record.offset >= bounds.first_uncleanable_offset:
        head.violate(record, "it is gone, though it lay past the first uncleanable offset")
    elif record.offset >= bounds.first_dirty_offset and (
        bounds.min_lag_ms > 0 and record.timestamp > bounds.now_ms - bounds.min_lag_ms
    ):
        age_ms = bounds.now_ms - record.timestamp
        head.violate(record, f"it is gone at an age of {age_ms} ms, before its time")


def _check_same(was: Seen, left: Seen, bounds: Bounds, offsets: _Tally) -> None:
    for name in ("key", "value", "timestamp", "headers"):
        if getattr(was.record, name) != getattr(left.record, name):
            offsets.violate(was.record, f"its {name} has changed")
            return
    # Undecided transactions may have been decided since.
    if was.record.offset < bounds.stable_offset and was.is_committed != left.is_committed:
        verb = "are" if left.is_committed else "are not"
        offsets.violate(was.record, f"read_committed consumers {verb} shown it now")
