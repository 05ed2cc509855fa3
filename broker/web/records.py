"""A topic's records over HTTP, the newest first: all of them, or the latest of each key.

    GET /api/records?topic=T[&partition=P][&limit=N][&search=S][&before=P:OFFSET,…]
    GET /api/latest?topic=T[&partition=P][&limit=N][&search=S]

`search` keeps records whose key (with /api/records: or value) has the text in it. As many bytes
are read as the limit of one request allows; what was not looked at is told by partition, and
`before` takes it up from there. A latest record without a value says that the key was deleted.
"""

from __future__ import annotations

import asyncio
import codecs
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING

from aiohttp import web

from broker.topic import Topic
from broker.web.requests import Parameters, Problem, answer_from_thread, topic_of
from cleaner.browse import Found, LatestOnly, Matching, Newest, browse
from cleaner.errors import CleaningAborted
from cleaner.snapshot import take_snapshot
from cleaner.throttle import Pace
from protocol.batches import Record
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.composition import Broker

Json = dict[str, object]

RECORDS_DEFAULT, RECORDS_MAX = 50, 1000
# What one request reads at most, of all partitions together, and how many records it decodes: a
# few seconds. As many bytes hold some 600,000 records that are not compressed, of 100 bytes each.
READ_BYTES_MAX = 64 << 20
DECODED_MAX = 1_000_000
_READERS_MAX = 2
# What is told of a key or a value; whoever wants all of it consumes it.
_TOLD_BYTES_MAX = 4096
_UTF_8 = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request wants to see."""

    topic: Topic
    partitions: tuple[int, ...]
    limit: int
    search: bytes
    before: Mapping[int, int]  # by partition: only records below this offset
    is_latest: bool

    def newest(self) -> Newest:
        """Return what tells the records to show, for one partition."""
        search = self.search
        if self.is_latest:
            return LatestOnly(lambda key: search in key)
        return Matching(lambda one: search in (one.key or b"") or search in (one.value or b""))


def add_record_routes(app: web.Application, broker: Broker) -> None:
    """Add what is asked about records to an application."""
    routes = RecordRoutes(broker)
    app.router.add_get("/api/records", routes.records)
    app.router.add_get("/api/latest", routes.latest)
    app.on_shutdown.append(routes.stop)


class RecordRoutes:
    """Answers as JSON; the event loop owns it, and threads read."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reading = asyncio.Semaphore(_READERS_MAX)
        self._stopping = threading.Event()

    async def stop(self, app: web.Application) -> None:
        """Have all threads stop."""
        self._stopping.set()

    async def records(self, request: web.Request) -> web.Response:
        """Tell the newest records."""
        return await self._answer(self._asked(request, is_latest=False))

    async def latest(self, request: web.Request) -> web.Response:
        """Tell the latest record of each of the keys that were written last."""
        return await self._answer(self._asked(request, is_latest=True))

    def _asked(self, request: web.Request, *, is_latest: bool) -> Asked:
        known = ["topic", "partition", "limit", "search"]
        parameters = Parameters(request, known if is_latest else [*known, "before"])
        topic, numbers = topic_of(
            self._broker, parameters.text("topic"), parameters.number("partition")
        )
        limit = parameters.number("limit")
        limit = RECORDS_DEFAULT if limit is None else limit
        if not 0 < limit <= RECORDS_MAX:
            raise Problem(400, f"limit={limit} is out of range: 1 to {RECORDS_MAX}")
        search = (parameters.text("search") or "").encode("utf-8", "surrogateescape")
        before = _before(parameters.text("before") if not is_latest else None)
        partitions = tuple(one for one in numbers if not before or one in before)
        return Asked(topic, partitions, limit, search, before, is_latest)

    async def _answer(self, asked: Asked) -> web.Response:
        found: dict[int, Found] = {}
        problems: dict[int, str] = {}
        async with self._reading:
            for number in asked.partitions:
                try:
                    found[number] = await self._look(asked, number)
                except (StorageError, CleaningAborted) as error:
                    problems[number] = str(error)
        return await answer_from_thread(lambda: _told(asked, found, problems))

    async def _look(self, asked: Asked, number: int) -> Found:
        log = asked.topic.log(number)
        assert log is not None
        pace = Pace(lambda size_bytes: 0.0, self._stopping, lambda: log.is_closed)
        look = partial(
            browse,
            take_snapshot(log),
            before_offset=asked.before.get(number),
            newest=asked.newest(),
            records_max=asked.limit,
            bytes_max=READ_BYTES_MAX // len(asked.partitions),
            decoded_max=DECODED_MAX // len(asked.partitions),
            before_io=pace.before_io,
        )
        return await asyncio.get_running_loop().run_in_executor(None, look)


def _before(text: str | None) -> dict[int, int]:
    """Read `0:120,3:77`; raises Problem."""
    places: dict[int, int] = {}
    for part in (text or "").split(",") if text else ():
        number, _, offset = part.partition(":")
        if not (_is_number(number) and _is_number(offset)):
            raise Problem(400, f"before={text} is not of the form PARTITION:OFFSET,…")
        places[int(number)] = int(offset)
    return places


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def _told(asked: Asked, found: Mapping[int, Found], problems: Mapping[int, str]) -> Json:
    # By time, but within a partition by offset, whatever the timestamps there say.
    merged = merge(
        *([(number, one) for one in part.records] for number, part in found.items()),
        key=lambda pair: pair[1].timestamp,
        reverse=True,
    )
    records = list(merged)
    shown, left = records[: asked.limit], records[asked.limit :]
    before = {
        number: part.before_offset
        for number, part in found.items()
        if part.before_offset is not None
    }
    # What was found and is not shown has to be looked at again, from its newest record on.
    for number, record in left:
        before[number] = max(before.get(number, 0), record.offset + 1)
    return {
        "topic": asked.topic.name,
        "records": [_record(number, one) for number, one in shown],
        "before": ",".join(f"{number}:{offset}" for number, offset in sorted(before.items())),
        "read_bytes": sum(part.read_bytes for part in found.values()),
        "problems": [
            {"partition": number, "because": because} for number, because in problems.items()
        ],
    }


def _record(partition: int, record: Record) -> Json:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": _bytes(record.key),
        "value": _bytes(record.value),
        "headers": [
            {"key": name.encode("utf-8", "replace").decode(), "value": _bytes(value)}
            for name, value in record.headers
        ],
    }


def _bytes(data: bytes | None) -> Json | None:
    """Show the beginning of bytes: as text where they are, else in hexadecimal digits."""
    if data is None:
        return None
    told: Json = {"size_bytes": len(data), "is_cut": len(data) > _TOLD_BYTES_MAX}
    part = data[:_TOLD_BYTES_MAX]
    try:
        # A character that the cut has torn is no sign of bytes that are no text.
        return {**told, "text": _UTF_8().decode(part, final=not told["is_cut"])}
    except UnicodeDecodeError:
        return {**told, "hex": part.hex()}
