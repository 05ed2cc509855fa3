"""`odradek` whose workers kill themselves at a step of a handover, once for each file there.

    process.module = doomed_workers.__name__
    process.environment = doomed_workers.environment(folder)
    doomed_workers.doom(folder, AFTER_COMMIT)

The worker that comes to the step first dies there (SIGKILL). So a test chooses the exact moment,
and the broker has no code for that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.broker.catalog.store import CatalogStore
from odradek.broker.reassignment.closing import Closing
from odradek.broker.topics.following import FollowingTopics
from odradek.cli.main import main

_FOLDER = "DOOMED_WORKERS"
# Of the broker that hands over.
BEFORE_GIVING_UP, AFTER_CLOSE, AFTER_COMMIT = "before-giving-up", "after-close", "after-commit"
# Of the one that is to lead.
BEFORE_OPENING, AFTER_OPENING = "before-opening", "after-opening"


def environment(folder: Path) -> Mapping[str, str]:
    """Return the variables that the process gets."""
    return {_FOLDER: str(folder)}


def doom(folder: Path, *steps: str) -> None:
    """Let a worker die at each of some steps."""
    for step in steps:
        (folder / step).touch()


def left(folder: Path) -> list[str]:
    """Return the steps at which no worker has died yet."""
    return [path.name for path in folder.iterdir()]


def _die_at(step: str) -> None:
    try:
        (Path(os.environ[_FOLDER]) / step).unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _patch() -> None:
    give_up, close = FollowingTopics.give_up, Closing.close
    hand_over, update = CatalogStore.change_partitions, FollowingTopics._update

    def doomed_give_up(self: Any, *given: Any) -> Any:
        _die_at(BEFORE_GIVING_UP)
        return give_up(self, *given)

    async def doomed_close(self: Any, *given: Any) -> Any:
        found = await close(self, *given)
        _die_at(AFTER_CLOSE)
        return found

    async def doomed_hand_over(self: Any, *given: Any) -> Any:
        found = await hand_over(self, *given)
        _die_at(AFTER_COMMIT)
        return found

    async def doomed_update(self: Any, known: Any, record: Any) -> None:
        gains = any(
            self._leads(record, number) and not self._leads(known.record, number)
            for number in range(known.record.partition_count)
        )
        if gains:
            _die_at(BEFORE_OPENING)
        await update(self, known, record)
        if gains:
            _die_at(AFTER_OPENING)

    FollowingTopics.give_up = doomed_give_up  # type: ignore[method-assign]
    Closing.close = doomed_close  # type: ignore[method-assign]
    CatalogStore.change_partitions = doomed_hand_over  # type: ignore[method-assign]
    FollowingTopics._update = doomed_update  # type: ignore[method-assign]


if __name__ == "__main__":
    _patch()
    main()
