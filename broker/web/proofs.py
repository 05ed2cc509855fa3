"""The cleaner's proofs over HTTP: verify a topic, get the latest value of a key.

    POST /api/cleaner/verify?topic=T[&partition=P][&dry_run=true]
    GET  /api/get?topic=T&key=K[&key_format=text|hex|base64][&partition=P][&isolation=…]

Both read logs in threads, and stop when nobody waits for the answer any more.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web

from broker.topic import Topic
from broker.web.access import Access
from broker.web.requests import Parameters, Problem, answer, topic_of
from cleaner.errors import CleaningAborted
from cleaner.guarantees import Finding
from cleaner.lookup import Latest, find_latest
from cleaner.snapshot import take_snapshot
from cleaner.throttle import Pace
from cleaner.verification import NotCleaned, Verification, verify
from protocol.errors import ProtocolError
from protocol.partitioning import partition_of_key
from storage.errors import StorageError
from storage.log import Log

if TYPE_CHECKING:
    from broker.composition import Broker

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Look-ups that read at a time; more of them wait.
_LOOKUPS_MAX = 2
# How soon it is noticed that whoever asked has gone.
_GONE_CHECK_S = 0.5
# What is told of a cleaning (cleaner.stats.CleanResult).
_TOLD_OF_RUN = (
    "first_dirty_offset",
    "end_offset",
    "first_uncleanable_offset",
    "start_bytes",
    "end_bytes",
    "start_records",
    "end_records",
    "total_ms",
    "is_verified",
)


def add_routes(app: web.Application, broker: Broker, access: Access) -> None:
    """Serve the proofs."""
    api = ProofApi(broker, access)
    app.router.add_post("/api/cleaner/verify", api.verify)
    app.router.add_get("/api/get", api.get)
    app.on_shutdown.append(api.stop)


class ProofApi:
    """Answers the requests; owned by the event loop."""

    def __init__(self, broker: Broker, access: Access) -> None:
        self._broker, self._access = broker, access
        # A proof has up to cleaner.guarantees.KEYS_MAX keys in memory: one at a time.
        self._proving = asyncio.Lock()
        self._looking_up = asyncio.Semaphore(_LOOKUPS_MAX)
        self._paces: dict[Pace, Log] = {}
        self._is_stopping = False

    async def stop(self, app: web.Application) -> None:
        """Have all threads stop, and what was asked to be cleaned."""
        self._is_stopping = True
        for pace, log in self._paces.items():
            pace.stop()
            self._broker.cleaner.abort(log.topic, log.partition)

    async def verify(self, request: web.Request) -> web.Response:
        """Verify the partitions of a topic, one after the other."""
        parameters = Parameters(request, ("topic", "partition", "dry_run"))
        topic, numbers = self._asked(parameters)
        is_dry = parameters.flag("dry_run", default=False)
        if not is_dry:
            self._access.require(request)
        if not is_dry and not topic.config.compact:
            policy = ",".join(sorted(topic.config.cleanup_policy)) or "keep"
            cause = f"topic {topic.name} is not compacted (cleanup.policy={policy})"
            raise Problem(409, f"{cause}: only a dry run can look at it")
        told = []
        async with self._proving:
            for number in numbers:
                if self._is_stopping or _is_gone(request):
                    break
                told.append(await self._verify(request, topic, number, is_dry))
        is_proved = len(told) == len(numbers) and all(one["is_proved"] for one in told)
        return answer({"topic": topic.name, "is_proved": is_proved, "partitions": told})

    async def get(self, request: web.Request) -> web.Response:
        """Find the latest record of a key."""
        known = ("topic", "partition", "key", "key_format", "isolation")
        parameters = Parameters(request, known)
        topic, numbers = self._asked(parameters)
        key = _parse_key(parameters)
        isolation = parameters.text("isolation") or "read_committed"
        if isolation not in ("read_committed", "read_uncommitted"):
            raise Problem(400, "isolation is read_committed or read_uncommitted")
        is_committed = isolation == "read_committed"
        async with self._looking_up:
            return answer(await self._look_up(request, topic, numbers, key, is_committed))

    def _asked(self, parameters: Parameters) -> tuple[Topic, Sequence[int]]:
        """Return the topic and the partitions that a request is about."""
        return topic_of(self._broker, parameters.text("topic"), parameters.number("partition"))

    async def _verify(
        self, request: web.Request, topic: Topic, number: int, is_dry: bool
    ) -> dict[str, Any]:
        """Verify a partition; what goes wrong with it is part of the answer."""
        broker = self._broker
        try:
            log = _log_of(topic, number)
            with self._pace(log, broker.cleaner.charge) as pace:
                work = verify(
                    log,
                    broker.cleaner,
                    broker.partitions.home_of(log),
                    fs=broker.fs,
                    pace=pace,
                    run=not is_dry,
                )
                return _told(await _while_asked(request, pace, work))
        except (StorageError, ProtocolError, NotCleaned, CleaningAborted) as error:
            logger.warning("verified nothing of log=%s-%d: %s", topic.name, number, error)
            return {"partition": number, "is_proved": False, "error": str(error)}

    async def _look_up(
        self,
        request: web.Request,
        topic: Topic,
        numbers: Sequence[int],
        key: bytes,
        is_committed: bool,
    ) -> dict[str, Any]:
        """Look for a key where Kafka's default partitioner puts it, else in all partitions.

        Of those that another partitioner, or another number of partitions, has scattered, the
        one with the latest timestamp counts.
        """
        first = partition_of_key(key, len(topic.partitions))
        order = sorted(numbers, key=lambda number: number != first)
        found: list[Latest] = []
        searched: list[int] = []
        offline: list[int] = []
        for number in order:
            try:
                latest = await self._look_into(request, topic, number, key, is_committed)
            except StorageError as error:
                if topic.partitions[number] not in topic.logs:
                    offline.append(number)
                    continue
                raise Problem(500, f"partition {number}: {error}") from error
            except CleaningAborted as error:
                raise Problem(503, str(error)) from error
            searched.append(number)
            found += [latest] if latest is not None else []
            if latest is not None and number == first:
                break
        found.sort(key=lambda one: one.record.timestamp, reverse=True)
        return {
            "topic": topic.name,
            "key": _bytes(key),
            **_told_latest(found[0] if found else None),
            "searched": sorted(searched),
            "offline": offline,
            "also_in": [_place(one) for one in found[1:]],
        }

    async def _look_into(
        self, request: web.Request, topic: Topic, number: int, key: bytes, is_committed: bool
    ) -> Latest | None:
        log = _log_of(topic, number)
        snapshot = take_snapshot(log)
        with self._pace(log, lambda size_bytes: 0.0) as pace:
            find = partial(
                find_latest,
                snapshot,
                number,
                key,
                is_committed=is_committed,
                before_io=pace.before_io,
            )
            work = asyncio.get_running_loop().run_in_executor(None, find)
            return await _while_asked(request, pace, work)

    @contextmanager
    def _pace(self, log: Log, charge: Callable[[int], float]) -> Iterator[Pace]:
        pace = Pace(charge, threading.Event(), lambda: log.is_closed)
        self._paces[pace] = log
        try:
            yield pace
        finally:
            del self._paces[pace]


async def _while_asked(request: web.Request, pace: Pace, work: Awaitable[T]) -> T:
    """Await work; stop it when whoever asked has gone."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_GONE_CHECK_S)
            if _is_gone(request):
                pace.stop()
    finally:
        pace.stop()
        if not task.done():  # the broker stops, and so does the thread
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task.result()


def _is_gone(request: web.Request) -> bool:
    """Tell whether nobody waits for the answer any more."""
    return request.transport is None or request.transport.is_closing()


def _log_of(topic: Topic, number: int) -> Log:
    """Return a partition's log. Raises StorageError when it is offline."""
    log = topic.log(number)
    assert log is not None
    return log


def _parse_key(parameters: Parameters) -> bytes:
    text = parameters.text("key")
    if text is None:
        raise Problem(400, "say which key: &key=…")
    form = parameters.text("key_format") or "text"
    try:
        if form == "text":
            return text.encode()
        if form == "hex":
            return bytes.fromhex(text)
        if form == "base64":
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise Problem(400, f"the key is no {form}: {error}") from error
    raise Problem(400, "key_format is text, hex or base64")


def _told(one: Verification) -> dict[str, Any]:
    result = one.result
    return {
        "partition": one.partition,
        "is_proved": one.is_proved,
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        "clean_offset": one.clean_offset,
        "size_bytes": one.size_bytes,
        "cleaned": None if result is None else {
            name: getattr(result, name) for name in _TOLD_OF_RUN
        },
        "findings": [_told_finding(finding) for finding in one.findings],
    }  # fmt: skip


def _told_finding(finding: Finding) -> dict[str, Any]:
    violation = finding.violation
    told = None
    if violation is not None:
        key = None if violation.key is None else _bytes(violation.key)
        told = {"offset": violation.offset, "key": key, "text": violation.text}
    return {
        "name": finding.name,
        "examined": finding.examined,
        "of": finding.of,
        "violation": told,
    }


def _told_latest(latest: Latest | None) -> dict[str, Any]:
    if latest is None:
        return {"status": "absent"}
    record = latest.record
    return {
        "status": "deleted" if record.value is None else "found",
        **_place(latest),
        "value": None if record.value is None else _bytes(record.value),
        "headers": [
            {"key": name, "value": None if value is None else _bytes(value)}
            for name, value in record.headers
        ],
    }


def _place(latest: Latest) -> dict[str, int]:
    record = latest.record
    return {
        "partition": latest.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
    }


def _bytes(data: bytes) -> dict[str, str | None]:
    """Return bytes as JSON can have them: as text, if they are UTF-8, and as base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    return {"text": text, "base64": base64.b64encode(data).decode()}
