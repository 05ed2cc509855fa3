"""A topic's records over HTTP, the newest first: all of them, or the latest of each key.

    GET /api/records?topic=T[&partition=P][&limit=N][&search=S or &key=K][&filter=F]
                    [&before=P:OFFSET,…]
    GET /api/latest?topic=T[&partition=P][&limit=N][&search=S]

`search` keeps records whose key (with /api/records: or value) contains the text, `key` those of
one key, `filter` those for which an expression holds (filters.py). The bytes and records of one
request are bounded; `before` in the answer is the place from which the next request continues. A
latest record without a value means that the key was deleted. Keys, values and headers are cut to
their beginnings (octets.py), and shown by their schemas (decoding.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from odradek.broker.process.warm_up import load_record_kernels
from odradek.broker.topics.topic import Topic
from odradek.broker.web.concurrency import ConcurrencyLimiter, is_gone
from odradek.broker.web.decoding import DECODED_BYTES_MAX, Decoding
from odradek.broker.web.filters import RecordFilter
from odradek.broker.web.octets import as_text_or_hex, bounds, header_name, headers_left_out
from odradek.broker.web.requests import Parameters, Problem, answer, topic_of
from odradek.cleaner.errors import CleaningAborted
from odradek.cleaner.passes.throttle import Pace
from odradek.cleaner.proof.snapshot import Moment, hold, note_moment
from odradek.cleaner.reading.browse import (
    Found,
    LatestOnly,
    Limits,
    Matching,
    Newest,
    OfKey,
    browse,
)
from odradek.cleaner.reading.excerpts import Excerpt
from odradek.config.http import HttpConfig
from odradek.dataclass import dataclass
from odradek.storage.errors import StorageError

if TYPE_CHECKING:
    from odradek.broker.web.services import WebServices
    from odradek.schemas.records import Codecs

T = TypeVar("T")
Json = dict[str, object]

RECORDS_DEFAULT, RECORDS_MAX = 50, 1000
# The bounds of the bytes that one request reads, of their decompressed size, and of the records
# that it decodes, all partitions together: a second or two. Partitions have equal shares, and at
# least one step is taken in each, however small its share.
READ_BYTES_MAX = 64 << 20
UNPACKED_BYTES_MAX = 256 << 20
DECODED_MAX = 200_000
# A filter reads each record as JSON, and evaluates an expression.
FILTERED_MAX, FILTERED_BYTES_MAX = 20_000, 8 << 20
# Once a request has exceeded its bounds by this factor, it reads no further partition.
_SHARES_MAX = 4
# The bytes of all records in an answer: JSON may take six times as much.
SHOWN_BYTES_MAX = 2 << 20
# The bytes of a value in an answer.
_VALUE_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Asked:
    """The parameters of a request."""

    topic: Topic
    partitions: tuple[int, ...]
    limit: int
    search: bytes
    key: bytes | None
    before: Mapping[int, int]  # by partition: only records below this offset
    is_latest: bool
    filter: str | None

    def newest(self, partition: int, chosen: RecordFilter | None) -> Newest:
        """Return a collector that chooses the records of one partition."""
        passes = None if chosen is None else partial(chosen.passes, partition)
        if self.key is not None:
            return OfKey(self.key, passes)
        return LatestOnly(self.search) if self.is_latest else Matching(self.search, passes)

    def limits(self) -> Limits:
        """Return the limits of one partition, which has an equal share."""
        share = len(self.partitions)
        return Limits(
            records_max=self.limit,
            found_bytes_max=SHOWN_BYTES_MAX,
            read_bytes_max=READ_BYTES_MAX // share,
            unpacked_bytes_max=self.unpacked_bytes_max // share,
            decoded_max=self.decoded_max // share,
        )

    @property
    def unpacked_bytes_max(self) -> int:
        """The limit of decompressed bytes in all partitions."""
        return UNPACKED_BYTES_MAX if self.filter is None else FILTERED_BYTES_MAX

    @property
    def decoded_max(self) -> int:
        """The limit of records that are read, in all partitions."""
        return DECODED_MAX if self.filter is None else FILTERED_MAX


@dataclass(slots=True)
class Page:
    """The newest records of some partitions; one thread at a time adds to it.

    They are ordered by time, but within a partition by offset, whatever its timestamps are.
    """

    asked: Asked
    shown: list[tuple[int, Excerpt]] = field(default_factory=list)  # by partition
    before: dict[int, int] = field(default_factory=dict)
    read_bytes: int = 0
    unpacked_bytes: int = 0
    decoded: int = 0

    def add(self, partition: int, found: Found) -> None:
        """Add the records of a partition; those that have no room are left to later requests."""
        self.read_bytes += found.read_bytes
        self.unpacked_bytes += found.unpacked_bytes
        self.decoded += found.decoded
        if found.before_offset is not None:
            self.before[partition] = found.before_offset
        records = list(
            merge(
                self.shown,
                [(partition, one) for one in found.records],
                key=lambda pair: pair[1].timestamp,
                reverse=True,
            )
        )
        sizes = (record.size_bytes for _, record in records)
        self.shown = records[: count_shown(sizes, self.asked.limit)]
        for number, record in records[len(self.shown) :]:
            self.before[number] = max(self.before.get(number, 0), record.offset + 1)

    def pass_over(self, partition: int, end_offset: int) -> None:
        """Leave a partition for the next request."""
        self.before[partition] = end_offset

    @property
    def is_full(self) -> bool:
        """Whether the request reads no further partition."""
        return (
            self.unpacked_bytes >= _SHARES_MAX * self.asked.unpacked_bytes_max
            or self.decoded >= _SHARES_MAX * self.asked.decoded_max
        )


def count_shown(sizes: Iterable[int], limit: int) -> int:
    """Return the number of records that one answer has room for, given the bytes of each."""
    count = size_bytes = 0
    for size in islice(sizes, limit):
        count, size_bytes = count + 1, size_bytes + size
        if size_bytes >= SHOWN_BYTES_MAX:
            break
    return count


def add_record_routes(
    app: web.Application, broker: WebServices, reads: ConcurrencyLimiter
) -> None:
    """Add the routes about records to an application."""
    routes = RecordRoutes(broker, reads)
    app.router.add_get("/api/records", routes.records)
    app.router.add_get("/api/latest", routes.latest)
    app.on_shutdown.append(routes.stop)


class RecordRoutes:
    """Answers as JSON; the event loop owns it, and threads read."""

    def __init__(self, broker: WebServices, reads: ConcurrencyLimiter) -> None:
        self._broker, self._reads = broker, reads
        self._codecs = _codecs_of(broker.configs.of(HttpConfig))
        self._paces: set[Pace] = set()
        self._is_stopping = False

    async def stop(self, app: web.Application) -> None:
        """Stop all threads."""
        self._is_stopping = True
        for pace in self._paces:
            pace.stop()

    async def records(self, request: web.Request) -> web.StreamResponse:
        """Answer with the newest records."""
        return await self._answer(request, self._asked(request, is_latest=False))

    async def latest(self, request: web.Request) -> web.StreamResponse:
        """Answer with the latest record of each of the keys that were written last."""
        return await self._answer(request, self._asked(request, is_latest=True))

    def _asked(self, request: web.Request, *, is_latest: bool) -> Asked:
        known = ["topic", "partition", "limit", "search"]
        if not is_latest:
            known += ["key", "before", "filter"]
        parameters = Parameters(request, known)
        topic, numbers = topic_of(self._broker, parameters)
        limit = parameters.number("limit")
        limit = RECORDS_DEFAULT if limit is None else limit
        if not 0 < limit <= RECORDS_MAX:
            raise Problem(400, f"limit={limit} is out of range: 1 to {RECORDS_MAX}")
        search, key = _octets(parameters.text("search")) or b"", _octets(parameters.text("key"))
        if key is not None and search:
            raise Problem(400, "give key or search, not both")
        before = _before(parameters.text("before") if not is_latest else None)
        partitions = tuple(one for one in numbers if not before or one in before)
        chosen = (parameters.text("filter") or None) if not is_latest else None
        return Asked(topic, partitions, limit, search, key, before, is_latest, chosen)

    async def _answer(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        page, problems = Page(asked), dict[int, str]()
        async with self._reads.turn(request) as turn:
            chosen = await self._filter(request, asked)
            for number in asked.partitions:
                if self._is_stopping or is_gone(request):
                    break
                try:
                    await self._look(request, number, page, chosen)
                except (StorageError, CleaningAborted) as error:
                    problems[number] = str(error)
            body = partial(_as_json, page, problems, chosen, self._codecs)
            response = await self._run(request, lambda: answer(body()))
            return await turn.send(request, response)

    async def _filter(self, request: web.Request, asked: Asked) -> RecordFilter | None:
        """Compile the filter, in a thread: its library is large."""
        text = asked.filter
        if text is None:
            return None
        return await self._run(request, lambda: RecordFilter(text, self._codecs))

    async def _look(
        self, request: web.Request, number: int, page: Page, chosen: RecordFilter | None
    ) -> None:
        log = page.asked.topic.log(number)
        assert log is not None
        if page.is_full:
            page.pass_over(number, page.asked.before.get(number, log.last_stable_offset))
            return
        pace = Pace(lambda size_bytes: 0.0, threading.Event(), lambda: log.is_closed)
        newest = page.asked.newest(number, chosen)
        work = partial(self._add, page, number, newest, note_moment(log), pace.before_io)
        await self._run(request, work, pace)

    async def _run(
        self, request: web.Request, work: Callable[[], T], pace: Pace | None = None
    ) -> T:
        """Run work in a thread of this limit: a schema registry may take its time."""
        pace = pace or Pace(lambda size_bytes: 0.0, threading.Event(), lambda: False)
        self._paces.add(pace)
        try:
            return await self._reads.run(request, pace, work)
        finally:
            self._paces.discard(pace)

    def _add(
        self,
        page: Page,
        number: int,
        newest: Newest,
        moment: Moment,
        before_io: Callable[[int], None],
    ) -> None:
        """Read a partition; in a thread."""
        found = browse(
            hold(moment),
            before_offset=page.asked.before.get(number),
            newest=newest,
            limits=page.asked.limits(),
            bounds=bounds(_VALUE_BYTES_MAX if self._codecs is None else DECODED_BYTES_MAX),
            before_io=before_io,
            load_kernels=load_record_kernels,
        )
        page.add(number, found)


def _codecs_of(config: HttpConfig) -> Codecs | None:
    """Return the codecs of the schema registry, None without one."""
    url = config.odradek_schema_registry_url
    if not url:
        return None
    from odradek.schemas.records import Codecs
    from odradek.schemas.registry import Registry

    return Codecs(Registry(url, config.odradek_schema_registry_basic_auth_user_info))


def _octets(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


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


def _as_json(
    page: Page,
    problems: Mapping[int, str],
    chosen: RecordFilter | None,
    codecs: Codecs | None,
) -> Json:
    decoding = Decoding(codecs)
    shown: Json = {
        "topic": page.asked.topic.name,
        "records": [_record(number, one, decoding) for number, one in page.shown],
        "before": ",".join(f"{number}:{offset}" for number, offset in sorted(page.before.items())),
        "read_bytes": page.read_bytes,
        "read_records": page.decoded,
        "problems": [
            {"partition": number, "because": because} for number, because in problems.items()
        ],
    }
    if chosen is not None:
        shown["filter"] = {"failed": chosen.failed, "because": chosen.first_failure}
    return shown


def _record(partition: int, record: Excerpt, decoding: Decoding) -> Json:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": decoding.shown(record.key),
        "value": decoding.shown(record.value),
        "headers": [
            {**header_name(name), "value": as_text_or_hex(value)} for name, value in record.headers
        ],
        **headers_left_out(record),
    }
