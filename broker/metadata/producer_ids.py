"""Producer ids: numbers that no two producers of the cluster ever share (KIP-98)."""

from __future__ import annotations

import asyncio

from odradek.broker.metadata.store import MetadataStore

# Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE. The rest of a block is lost at a restart.
BLOCK_SIZE = 1000


class ProducerIds:
    """Hands out producer ids, from blocks that the metadata store has reserved."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = self._end = 0
        self._refill = asyncio.Lock()

    async def take(self) -> int:
        """Return an id that no producer had before. Raises MetadataError."""
        while True:
            await self.fill()
            taken = self.take_now()
            if taken is not None:  # otherwise other callers that waited here were first
                return taken

    async def fill(self) -> None:
        """Make sure that an id is available. Raises MetadataError."""
        if self._next < self._end:
            return
        async with self._refill:
            # A caller that waited here finds the block that the first one fetched.
            if self._next == self._end:
                first = await self._store.allocate_producer_ids(BLOCK_SIZE)
                self._next, self._end = first, first + BLOCK_SIZE

    def take_now(self) -> int | None:
        """Return an id that no producer had before, or None when none is available."""
        if self._next == self._end:
            return None
        taken = self._next
        self._next += 1
        return taken
