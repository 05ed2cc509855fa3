"""Consumers of a simulated cluster: they read committed records, and commit their positions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import iterate_batches
from odradek.protocol.control import decode_control
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.histories.history import OffsetCommit, OffsetFetch, Outcome, Place, Read
from tests.simulation.cluster.clients import GROUP, RETRIABLE, Client, Unanswered, rack_of
from tests.support.requests import committing, fetching

_PAUSE_S = 0.15
_FETCH_VERSION = 12
_ALL, _COMMITTED = 0, 1


class Reader:
    """A consumer of a group, with partitions that it has chosen itself."""

    def __init__(self, client: Client, places: Sequence[Place]) -> None:
        self.client, self._places = client, places
        self.group = f"group-{client.name}"
        self._positions: defaultdict[Place, int] = defaultdict(int)
        self._commits: defaultdict[Place, int] = defaultdict(int)

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Read until it is over."""
        source = self.client.source
        while not is_over():
            place = source.choice(self._places)
            if await self._read(place) and source.random() < 0.5:
                await self._commit(place)
            if source.random() < 0.2:
                await find_committed(self.client, self.group, place)
            await asyncio.sleep(_PAUSE_S * source.random())

    async def _read(self, place: Place) -> bool:
        try:
            found = await fetch(self.client, place, self._positions[place], _COMMITTED)
        except Unanswered:
            return False
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A power failure has taken records that were not flushed.
            self._positions[place] = 0
        elif found.error_code:
            await self.client.back_off()
        else:
            position = self._positions[place]
            for one in records_of(self.client, place, found, position, _COMMITTED):
                self.client.history.add(one)
            self._positions[place] = end_of(found, position)
            return True
        return False

    async def _commit(self, place: Place) -> None:
        """Commit the position, unless a later one was committed."""
        position = self._positions[place]
        if position <= self._commits[place]:
            return
        self._commits[place] = position
        history = self.client.history
        commit = history.add(OffsetCommit(self.group, place, position))
        asked = committing(self.group, {place[0]: {place[1]: position}})
        try:
            answer = await self.client.ask_coordinator(GROUP, self.group, asked, 8)
        except Unanswered:
            return
        code = answer.topics[0].partitions[0].error_code
        if not code:
            history.end(commit, Outcome.DONE)
            return
        if code not in RETRIABLE:
            history.troubles.append(
                f"refused: {self.group}: commit: {ErrorCode.of(code).name}"
            )
        await self.client.back_off()


async def find_committed(client: Client, group: str, place: Place) -> int | None:
    """Ask for a group's committed offset, and note it; return None if there is no answer."""
    topics = [OffsetFetchRequestTopics(name=place[0], partition_indexes=[place[1]])]
    asked = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True
    )
    begun_at = client.history.tick()
    try:
        answer = await client.ask_coordinator(GROUP, group, asked, 8)
    except Unanswered:
        return None
    (found,) = answer.groups
    code = found.error_code or found.topics[0].partitions[0].error_code
    if code:
        await client.back_off()
        return None
    offset: int = found.topics[0].partitions[0].committed_offset
    client.history.add(OffsetFetch(group, place, offset, at=begun_at))
    return offset


async def read_all(
    client: Client, place: Place, isolation: int, begin: int = 0
) -> list[Read]:
    """Read a partition from an offset to its end, once no transaction is open in it."""
    found: list[Read] = []
    position = begin
    while True:
        try:
            data = await fetch(client, place, position, isolation)
        except Unanswered:
            continue
        if data.error_code or data.last_stable_offset != data.high_watermark:
            await client.back_off()
            continue
        found += records_of(client, place, data, position, isolation)
        position = end_of(data, position)
        if position >= data.high_watermark:
            return found


async def fetch(
    client: Client, place: Place, position: int, isolation: int, near: int | None = None
) -> Any:
    """Fetch from the leader of a partition, or from the broker of the consumer's rack.

    Raises Unanswered.
    """
    topic, number = place
    rack = "" if near is None else rack_of(near)
    asked = fetching(topic, position, partition=number, isolation=isolation, rack=rack)
    if near is None:
        answer = await client.ask_leader(place, asked, _FETCH_VERSION)
    else:
        answer = await client.ask(near, asked, _FETCH_VERSION)
    if not answer.responses:  # blocks were dropped from the cache again before they were read
        raise Unanswered("the partition is not in the answer")
    return answer.responses[0].partitions[0]


def records_of(
    client: Client, place: Place, data: Any, position: int, isolation: int
) -> Iterator[Read]:
    """Iterate over the records of an answer, without those of aborted transactions."""
    waiting = sorted(
        data.aborted_transactions or (), key=lambda one: one.first_offset, reverse=True
    )
    aborted: set[int] = set()
    at = client.history.tick()
    raw = data.records or b""
    for start, header in iterate_batches(raw):
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborted.add(waiting.pop().producer_id)
        records = decode_records(raw, start)
        if header.is_control:
            if decode_control(records[0]).type.name == "ABORT":
                aborted.discard(header.producer_id)
            continue
        if isolation == _COMMITTED and header.is_transactional and header.producer_id in aborted:
            continue
        for one in records:
            if one.offset >= position:
                assert one.value is not None
                yield Read(
                    client.name, place, one.offset, header.leader_epoch,
                    bytes(one.value).decode(), isolation == _COMMITTED, at=at,
                )  # fmt: skip


def end_of(data: Any, position: int) -> int:
    """Return the position after an answer."""
    for _, header in iterate_batches(data.records or b""):
        position = max(position, header.next_offset)
    return position
