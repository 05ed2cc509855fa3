"""A problem of a history, with the events that show it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.histories.history import Event, Place


@dataclass(frozen=True, slots=True)
class Problem:
    """A promise that was broken; its text is "kind: sentence"."""

    kind: str
    sentence: str
    place: Place | None = None
    offsets: tuple[int, ...] = ()
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}" if self.kind else self.sentence

    @property
    def at(self) -> int:
        """The moment from which it was there to be seen; 0 if unknown."""
        return max((one.done_at or one.at for one in self.events), default=0)
