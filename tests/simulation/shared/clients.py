"""Consumers of shared topics that go back now and then, and the deletion of their records."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import iterate_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.histories.history import Deletion, History, Outcome, Place, Read, Start
from tests.simulation.cluster.clients import RETRIABLE, Client, Unanswered
from tests.simulation.cluster.consumers import end_of, fetch, read_all, records_of
from tests.support.requests import listing_offsets

_PAUSE_S = 0.15
_DELETION_PAUSE_S = 1.0
_REWIND_SHARE = 0.15
_TIMEOUT_MS = 1_000
_EARLIEST = -2


class Gaps:
    """The offsets of partitions that had no record any more: none of them has one again.

    Compaction has removed it, as readers of leaders have found.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        # When an offset was first found without a record.
        self._since: defaultdict[Place, dict[int, int]] = defaultdict(dict)

    def look(self, place: Place, begun_at: int, position: int, data: Any) -> None:
        """Look at an answer to a request that was begun at a moment, from a position on."""
        raw, there = data.records or b"", set[int]()
        for start, _ in iterate_batches(raw):
            there.update(one.offset for one in decode_records(raw, start))
        since = self._since[place]
        for offset in range(position, end_of(data, position)):
            if offset not in there:
                since.setdefault(offset, self._history.at)
            elif since.get(offset, begun_at) < begun_at:
                self._history.troubles.append(f"back: the record of {place} at {offset} was gone")


class SharedReader:
    """A consumer without a group."""

    def __init__(
        self,
        client: Client,
        places: Sequence[Place],
        isolation: int,
        committed_end: Callable[[Place], int],
        gaps: Gaps | None,
        *,
        is_near: bool = False,
    ) -> None:
        """`committed_end` returns the end of a partition's committed records.

        One that is near a broker reads from that one, whichever leads (KIP-392).
        """
        self._near = client.any_broker() if is_near else None
        self.client, self._places, self._isolation = client, places, isolation
        self._committed_end, self._gaps = committed_end, gaps
        self._positions: dict[Place, int] = {}

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Read until it is over."""
        source = self.client.source
        while not is_over():
            place = source.choice(self._places)
            with contextlib.suppress(Unanswered):
                await self._read(place)
            await asyncio.sleep(_PAUSE_S * source.random())

    async def _read(self, place: Place) -> None:
        client = self.client
        position = self._positions.get(place)
        if position is None:
            position = await find_start(client, place)
            if position is None:
                return
        begun_at = client.history.tick()
        found = await fetch(client, place, position, self._isolation, self._near)
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions.pop(place, None)
        elif found.error_code:
            await client.back_off()
        else:
            if self._near is None:  # others hear later of deleted records
                client.history.add(Start(place, found.log_start_offset))
                if self._gaps is not None:
                    self._gaps.look(place, begun_at, position, found)
            for one in records_of(client, place, found, position, self._isolation):
                client.history.add(one)
            end = end_of(found, position)
            committed_end = self._committed_end(place)
            if max(end, found.high_watermark) > committed_end:
                client.history.troubles.append(
                    f"unstable: {place} was read up to {end}, its high watermark is "
                    f"{found.high_watermark}, committed is {committed_end}"
                )
            self._positions[place] = end
            if client.source.random() < _REWIND_SHARE:
                self._positions[place] = client.source.randint(found.log_start_offset, end)


class Deleter:
    """Deletes the first records of partitions."""

    def __init__(self, client: Client, places: Sequence[Place]) -> None:
        self.client, self._places = client, places

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Delete records until it is over."""
        source = self.client.source
        while not is_over():
            await asyncio.sleep(_DELETION_PAUSE_S * 2 * source.random())
            try:
                await self._delete(source.choice(self._places))
            except Unanswered:
                continue

    async def _delete(self, place: Place) -> None:
        client, (topic, number) = self.client, place
        known = [one.offset for one in client.history.reads if one.place == place]
        offset = client.source.choice(known[-20:]) if known else 0
        deletion = client.history.add(Deletion(place, offset))
        part = DeleteRecordsPartition(partition_index=number, offset=offset)
        asked = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=_TIMEOUT_MS
        )
        answer = await client.ask_leader(place, asked, 2)
        (found,) = answer.topics[0].partitions
        if not found.error_code:
            client.history.end(deletion, Outcome.DONE)
            client.history.add(Start(place, found.low_watermark, is_promise=True))
        elif found.error_code not in {*RETRIABLE, ErrorCode.OFFSET_OUT_OF_RANGE}:
            name = ErrorCode.of(found.error_code).name
            client.history.troubles.append(f"refused: deletion in {place}: {name}")


async def find_start(client: Client, place: Place) -> int | None:
    """Return the first offset of a partition, None if its leader does not say."""
    asked = listing_offsets({place[0]: [place[1]]}, _EARLIEST)
    answer: Any = await client.ask_leader(place, asked, 7)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        await client.back_off()
        return None
    offset: int = found.offset
    client.history.add(Start(place, offset))
    return offset


async def read_from_start(
    client: Client, place: Place, isolation: int
) -> tuple[int, list[Read]]:
    """Read a partition to its end, once no transaction is open in it; with its first offset."""
    begin: int | None = None
    while begin is None:
        try:
            begin = await find_start(client, place)
        except Unanswered:
            continue
    return begin, await read_all(client, place, isolation, begin)
