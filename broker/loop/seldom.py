"""Logs events that any client can cause at any rate: at most one line a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable

EVERY_S = 60.0


class Seldom:
    """Counts one kind of event, and logs the count now and then; the event loop owns it."""

    def __init__(self, logger: logging.Logger, now_s: Callable[[], float], what: str) -> None:
        self._logger, self._now_s, self._what = logger, now_s, what
        self._count = 0
        self._log_from_s = -EVERY_S

    def note(self, address: str) -> None:
        """Count one event of an address; log the count since the last line, if it is time."""
        self._count += 1
        now_s = self._now_s()
        if now_s >= self._log_from_s:
            self._logger.warning(
                "%s count=%d last_address=%s", self._what, self._count, address
            )
            self._count, self._log_from_s = 0, now_s + EVERY_S
