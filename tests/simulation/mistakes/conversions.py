"""Mistakes about changes of a topic's storage that a simulation has to find."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.reassignment.closing import Closing
from odradek.broker.shared.log_copy import LogCopy
from odradek.storage.copied_log import CopiedLog


def forget_the_rest(patch: pytest.MonkeyPatch) -> None:
    """The records that came during the copy are not copied."""

    async def end(self: LogCopy) -> None:
        pass

    patch.setattr(LogCopy, "_end_as_the_log", end)


def forget_producers_of_copies(patch: pytest.MonkeyPatch) -> None:
    """A copy on a disk knows the producers of its batches alone."""
    close = CopiedLog.close

    def forgetful(
        self: CopiedLog, start_offset: int, end_offset: int = -1, producers: Any = None
    ) -> Any:
        return close(self, start_offset, end_offset)

    patch.setattr(CopiedLog, "close", forgetful)


def believe_any_outcome(patch: pytest.MonkeyPatch) -> None:
    """A change of the catalog whose answer was lost is taken for one that was not made."""

    async def learn(self: Closing, *, in_doubt: bool) -> bool:
        assert self._changes.follow is not None
        if not in_doubt:
            await self._changes.follow()
        return True

    patch.setattr(Closing, "_learn_outcome", learn)
