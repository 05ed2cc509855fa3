"""The records that are there in the end, and those that may be gone."""

from __future__ import annotations

from collections.abc import Mapping

from tests.histories.history import Append, History, Outcome, Place, Read, key_of

_ANY_OFFSET = 1 << 63


class Final:
    """The logs as the last readers have found them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.by_offset = {
            place: {one.offset: one.value for one in reads}
            for place, reads in history.final.items()
        }
        self._values, self._committed = _values(history.final), _values(history.final_committed)
        # The offset of the last committed record of each key, and that of its last tombstone.
        self._last: dict[tuple[Place, bytes], int] = {}
        self._tombstones: dict[tuple[Place, bytes], int] = {}
        for place, reads in history.final_committed.items():
            if history.topic(place).is_compacted:
                for one in reads:
                    self._last[place, key_of(one.value)] = one.offset
        for append in history.appends:
            if append.tombstones and may_be_there(append):
                self._note_tombstones(append)

    def _note_tombstones(self, append: Append) -> None:
        for at, value in enumerate(append.values):
            if value in append.tombstones:
                key = append.place, key_of(value)
                offset = append.offset + at if append.offset >= 0 else _ANY_OFFSET
                self._tombstones[key] = max(offset, self._tombstones.get(key, -1))

    def has_read(self, place: Place) -> bool:
        """Return whether a partition was read in the end."""
        return place in self._committed

    def has(self, place: Place, value: str) -> bool:
        """Return whether all readers have found a committed record in the end."""
        return value in self._committed[place] and value in self._values.get(place, {value})

    def has_committed(self, place: Place, value: str) -> bool:
        """Return whether readers of committed records have found one in the end."""
        return value in self._committed[place]

    def may_lack(self, place: Place, value: str, offset: int) -> bool:
        """Return whether a committed record may be gone that was at an offset, -1 if unknown."""
        start = self._history.final_starts.get(place, 0)
        if 0 <= offset < start or (offset < 0 and start):
            return True
        if not self._history.topic(place).is_compacted:
            return False
        key = place, key_of(value)
        return self._last.get(key, -1) > offset or self._tombstones.get(key, -1) >= max(offset, 0)


def may_be_there(append: Append) -> bool:
    """Return whether a batch was committed, or may have been."""
    of = append.transaction
    return Outcome.UNDONE not in (append.outcome, of.outcome if of else None)


def is_acknowledged(append: Append) -> bool:
    """Return whether a batch was acknowledged, and its transaction committed."""
    of = append.transaction
    return append.outcome is Outcome.DONE and (of is None or of.outcome is Outcome.DONE)


def offset_of(append: Append, at: int) -> int:
    """Return the offset of a record of a batch, -1 if unknown."""
    return append.offset + at if append.offset >= 0 else -1


def _values(reads: Mapping[Place, list[Read]]) -> dict[Place, set[str]]:
    return {place: {one.value for one in some} for place, some in reads.items()}
