"""Counts of authorization decisions; the event loop owns them."""

from __future__ import annotations

from odradek.dataclass import dataclass


@dataclass(slots=True)
class AuthorizationCounts:
    """Decisions since the start, and those of the last whole minute."""

    allowed: int = 0
    denied: int = 0
    allowed_per_minute: int = 0
    denied_per_minute: int = 0
    _allowed_before: int = 0
    _denied_before: int = 0

    def turn_minute(self) -> None:
        """Note that a minute has passed."""
        self.allowed_per_minute = self.allowed - self._allowed_before
        self.denied_per_minute = self.denied - self._denied_before
        self._allowed_before, self._denied_before = self.allowed, self.denied
