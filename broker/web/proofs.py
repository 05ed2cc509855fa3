"""The cleaner's proofs over HTTP: verify a topic, get the latest value of a key.

    POST /api/cleaner/verify?topic=T[&partition=P][&dry_run=true]
    GET  /api/get?topic=T&key=K[&key_format=text|hex|base64][&partition=P][&isolation=…]
                 [&value_bytes=N]

Both read logs in threads, and stop when the client has gone. A value in an answer is cut to one
MiB, or to `value_bytes`: it comes as text and as base64, in one piece. Use Kafka's protocol to
read the whole of a larger value.
"""

from __future__ import annotations

import base64
import binascii
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from odradek.broker.process.warm_up import load_record_kernels
from odradek.broker.topics.topic import Topic
from odradek.broker.web.access import Access
from odradek.broker.web.cleaner_facts import prices_of
from odradek.broker.web.cleaner_json import store_use
from odradek.broker.web.concurrency import ConcurrencyLimiter, is_gone, while_asked
from odradek.broker.web.octets import (
    as_text_and_base64,
    bounds,
    cut,
    header_name,
    headers_left_out,
)
from odradek.broker.web.requests import Parameters, Problem, answer_from_thread, topic_of
from odradek.cleaner.errors import CleaningAborted
from odradek.cleaner.passes.throttle import Pace
from odradek.cleaner.proof.guarantees import Finding
from odradek.cleaner.proof.snapshot import Moment, hold, note_moment
from odradek.cleaner.reading.excerpts import Bounds
from odradek.cleaner.reading.lookup import Latest, find_latest
from odradek.cleaner.runtime.verification import NotCleaned, Verification, verify
from odradek.dataclass import dataclass
from odradek.protocol.errors import ProtocolError
from odradek.protocol.partitioning import partition_of_key
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.shared.bill import Prices
    from odradek.broker.web.services import WebServices

logger = logging.getLogger(__name__)

# A proof has up to cleaner.proof.guarantees.KEYS_MAX keys in memory: one at a time.
_PROOFS_MAX, _PROOFS_WAITING_MAX = 1, 8
# The bytes of a value in an answer: as JSON, text and base64 may take nine times as much.
VALUE_BYTES_MAX = 1 << 20
# The facts of a cleaning in an answer (cleaner.passes.stats.CleanResult).
_RESULT_FIELDS = (
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


def add_routes(
    app: web.Application, broker: WebServices, access: Access, reads: ConcurrencyLimiter
) -> None:
    """Serve the proofs."""
    api = ProofApi(broker, access, reads)
    app.router.add_post("/api/cleaner/verify", api.verify)
    app.router.add_get("/api/get", api.get)
    app.on_shutdown.append(api.stop)


@dataclass(frozen=True, slots=True)
class Asked:
    """The key whose latest value a request wants, and the bounds of the answer."""

    topic: Topic
    numbers: Sequence[int]
    key: bytes
    is_committed: bool
    bounds: Bounds


class ProofApi:
    """Answers the requests; owned by the event loop."""

    def __init__(self, broker: WebServices, access: Access, reads: ConcurrencyLimiter) -> None:
        self._broker, self._access, self._reads = broker, access, reads
        self._proofs = ConcurrencyLimiter("prove", _PROOFS_MAX, _PROOFS_WAITING_MAX)
        self._paces: dict[Pace, Log] = {}
        self._is_stopping = False

    async def stop(self, app: web.Application) -> None:
        """Stop all threads, and the cleanings that requests wait for."""
        self._is_stopping = True
        for pace, log in self._paces.items():
            pace.stop()
            self._broker.cleaner.abort(log.topic, log.partition)
        self._proofs.close()

    async def verify(self, request: web.Request) -> web.Response:
        """Verify the partitions of a topic, one after the other."""
        parameters = Parameters(request, ("topic", "partition", "dry_run"))
        topic, numbers = topic_of(self._broker, parameters)
        is_dry = parameters.flag("dry_run", default=False)
        if not is_dry:
            self._access.require(request)
        if not is_dry and not topic.config.compact:
            policy = ",".join(sorted(topic.config.cleanup_policy)) or "keep"
            cause = f"topic {topic.name} is not compacted (cleanup.policy={policy})"
            raise Problem(409, f"{cause}: only a dry run can verify it")
        verified = []
        # A proof also takes a turn of reads, but waits for other proofs outside of it.
        async with self._proofs.turn(request), self._reads.turn(request):
            for number in numbers:
                if self._is_stopping or is_gone(request):
                    break
                verified.append(await self._verify(request, topic, number, is_dry))
        is_proved = len(verified) == len(numbers) and all(one["is_proved"] for one in verified)
        return await answer_from_thread(
            lambda: {"topic": topic.name, "is_proved": is_proved, "partitions": verified}
        )

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Find the latest record of a key."""
        known = ("topic", "partition", "key", "key_format", "isolation", "value_bytes")
        parameters = Parameters(request, known)
        topic, numbers = topic_of(self._broker, parameters)
        key = parse_key(parameters)
        isolation = parameters.text("isolation") or "read_committed"
        if isolation not in ("read_committed", "read_uncommitted"):
            raise Problem(400, "isolation is read_committed or read_uncommitted")
        is_committed = isolation == "read_committed"
        value_bytes = parameters.number("value_bytes")
        value_bytes = VALUE_BYTES_MAX if value_bytes is None else value_bytes
        if value_bytes > VALUE_BYTES_MAX:
            cause = f"value_bytes={value_bytes} is out of range: 0 to {VALUE_BYTES_MAX}"
            raise Problem(400, f"{cause}; use Kafka's protocol to read a whole value")
        asked = Asked(topic, numbers, key, is_committed, bounds(value_bytes))
        async with self._reads.turn(request) as turn:
            return await turn.send(request, await self._look_up(request, asked))

    async def _verify(
        self, request: web.Request, topic: Topic, number: int, is_dry: bool
    ) -> dict[str, Any]:
        """Verify a partition; an error is part of the answer."""
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
                verified = await while_asked(request, pace, work)
                return _verification_as_json(verified, prices_of(broker))
        except (StorageError, ProtocolError, NotCleaned, CleaningAborted) as error:
            logger.warning("could not verify log=%s-%d: %s", topic.name, number, error)
            return {"partition": number, "is_proved": False, "error": str(error)}

    async def _look_up(self, request: web.Request, asked: Asked) -> web.Response:
        """Look for a key where Kafka's default partitioner puts it, else in all partitions.

        Another partitioner, or a change of the number of partitions, may have put records of the
        key into several partitions: the one with the latest timestamp counts.
        """
        topic = asked.topic
        first = partition_of_key(asked.key, len(topic.partitions))
        order = sorted(asked.numbers, key=lambda number: number != first)
        found: list[Latest] = []
        searched: list[int] = []
        offline: list[int] = []
        for number in order:
            try:
                latest = await self._look_into(request, asked, number)
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
        return await answer_from_thread(
            lambda: {
                "topic": topic.name,
                "key": as_text_and_base64(cut(asked.key)),
                **_latest_as_json(found[0] if found else None),
                "searched": sorted(searched),
                "offline": offline,
                "also_in": [_place(one) for one in found[1:]],
            }
        )

    async def _look_into(self, request: web.Request, asked: Asked, number: int) -> Latest | None:
        log = _log_of(asked.topic, number)
        with self._pace(log, lambda size_bytes: 0.0) as pace:
            find = partial(_find, asked, number, note_moment(log), pace)
            return await self._reads.run(request, pace, find)

    @contextmanager
    def _pace(self, log: Log, charge: Callable[[int], float]) -> Iterator[Pace]:
        pace = Pace(charge, threading.Event(), lambda: log.is_closed)
        self._paces[pace] = log
        try:
            yield pace
        finally:
            del self._paces[pace]


def _find(asked: Asked, number: int, moment: Moment, pace: Pace) -> Latest | None:
    """Look for the key in a partition; in a thread."""
    return find_latest(
        hold(moment),
        number,
        asked.key,
        is_committed=asked.is_committed,
        bounds=asked.bounds,
        before_io=pace.before_io,
        load_kernels=load_record_kernels,
    )


def _log_of(topic: Topic, number: int) -> Log:
    """Return a partition's log. Raises StorageError when it is offline."""
    log = topic.log(number)
    assert log is not None
    return log


def parse_key(parameters: Parameters) -> bytes:
    """Return the key that a request names. Raises Problem."""
    text = parameters.text("key")
    if text is None:
        raise Problem(400, "name the key: &key=…")
    form = parameters.text("key_format") or "text"
    try:
        if form == "text":
            return text.encode()
        if form == "hex":
            return bytes.fromhex(text)
        if form == "base64":
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise Problem(400, f"the key is not {form}: {error}") from error
    raise Problem(400, "key_format is text, hex or base64")


def _verification_as_json(one: Verification, prices: Prices | None) -> dict[str, Any]:
    result = one.result
    return {
        "partition": one.partition,
        "is_proved": one.is_proved,
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        "clean_offset": one.clean_offset,
        "size_bytes": one.size_bytes,
        "cleaned": None if result is None else {
            **{name: getattr(result, name) for name in _RESULT_FIELDS},
            "store": store_use(result.store, prices),
        },
        "store": store_use(one.store, prices),
        "findings": [_finding_as_json(finding) for finding in one.findings],
    }  # fmt: skip


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    violation = finding.violation
    shown = None
    if violation is not None:
        key = None if violation.key is None else as_text_and_base64(cut(violation.key))
        shown = {"offset": violation.offset, "key": key, "text": violation.text}
    return {
        "name": finding.name,
        "examined": finding.examined,
        "of": finding.of,
        "violation": shown,
    }


def _latest_as_json(latest: Latest | None) -> dict[str, Any]:
    if latest is None:
        return {"status": "absent"}
    record = latest.record
    return {
        "status": "deleted" if record.value is None else "found",
        **_place(latest),
        "value": as_text_and_base64(record.value),
        "headers": [
            {**header_name(name), "value": as_text_and_base64(value)}
            for name, value in record.headers
        ],
        **headers_left_out(record),
    }


def _place(latest: Latest) -> dict[str, int]:
    record = latest.record
    return {
        "partition": latest.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
    }
