"""Changes rows of segments in the catalog, and repeats that until there is an answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.garbage_rows import note_garbage
from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.segment_rows import NotLed, SegmentGap, SegmentRow
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.obstacle import Obstacle
from odradek.storage.errors import StorageError

Change = Callable[[Connection, Engine], object]

_RETRY_S = 1.0


class RowChanges:
    """Owned by the event loop; its owner makes one change at a time."""

    def __init__(self, line: Line, obstacle: Obstacle) -> None:
        """`obstacle` gets the errors after which a change is repeated."""
        self._line, self._obstacle = line, obstacle

    async def name(self, rows: Sequence[SegmentRow], work: Change) -> None:
        """Add rows that name an object; it is garbage if the catalog refuses them."""
        try:
            await self.commit(work)
        except (MetadataError, StorageError):
            await self.drop(rows)
            raise

    async def commit(self, work: Change) -> None:
        """Change the catalog. Raises SessionClosed, NotLed, SegmentGap and StaleSegments."""
        while True:
            try:
                await self._line.touch(lambda to: work(to, self._line.engine))
                return
            except (SessionClosed, NotLed, SegmentGap):
                raise
            except MetadataError as error:
                self._obstacle.note(error)
                await asyncio.sleep(_RETRY_S)

    async def drop(self, rows: Iterable[SegmentRow]) -> None:
        """Let objects that no row names be deleted, as far as the catalog answers."""
        sizes = Counter[str]()
        for one in rows:
            sizes[one.key] += one.size_bytes
        with suppress(MetadataError):  # then fsck finds the objects
            await self._line.touch(lambda to: note_garbage(to, self._line.engine, sizes))
