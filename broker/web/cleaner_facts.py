"""The facts for answers about the cleaner: noted on the event loop, computed in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from odradek.cleaner.rules.why import Answer, Facts, OpenTransaction, explain
from odradek.cleaner.runtime.survey import Finding, Noted, Unreadable, assess
from odradek.dataclass import dataclass
from odradek.protocol.errors import ProtocolError
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.shared.bill import Prices
    from odradek.broker.shared.levels import NotedLevels
    from odradek.broker.web.services import WebServices

# The logs that are noted in one turn of the event loop.
_LOGS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class NotedLog:
    """A log with all facts that an answer about it depends on."""

    log: Log  # only to pass on: a thread must not read it
    noted: Noted
    transaction: OpenTransaction | None
    levels: NotedLevels | None  # of a shared log, where they are asked for


@dataclass(frozen=True, slots=True)
class ExplainedLog:
    """A log, its state, and its next cleaning."""

    log: Log
    finding: Finding
    answer: Answer
    levels: NotedLevels | None


async def explain_logs(
    broker: WebServices, logs: Iterable[Log], now_ms: int, *, levels_of: Collection[Log] = ()
) -> tuple[list[ExplainedLog], list[Unreadable]]:
    """Find the state of logs, of some with their levels; the event loop does other work, too."""
    sharing = broker.sharing
    noted_logs = []
    for at, log in enumerate(list(logs)):
        if at % _LOGS_AT_ONCE == _LOGS_AT_ONCE - 1:
            await asyncio.sleep(0)
        if not log.is_closed:
            noted, transaction = broker.cleaner.note(log), _open_transaction(log)
            levels = None
            if sharing is not None and log in levels_of:
                levels = sharing.uploads.note_levels(log)
            noted_logs.append(NotedLog(log, noted, transaction, levels))
    return await asyncio.get_running_loop().run_in_executor(None, _explain_all, noted_logs, now_ms)


def prices_of(broker: WebServices) -> Prices | None:
    """Return the prices of the object store, None without one."""
    return None if broker.sharing is None else broker.sharing.prices


def _explain_all(
    noted_logs: Sequence[NotedLog], now_ms: int
) -> tuple[list[ExplainedLog], list[Unreadable]]:
    explained: list[ExplainedLog] = []
    unreadable: list[Unreadable] = []
    for one in noted_logs:
        try:
            finding = assess(one.noted, now_ms)
            facts = Facts(
                finding.facts,
                one.noted.checkpoint,
                one.noted.standing,
                one.noted.threads,
                one.noted.active,
                one.transaction,
                one.noted.horizon_ms,
            )
            answer = explain(facts, now_ms)
            explained.append(ExplainedLog(one.log, finding, answer, one.levels))
        except (StorageError, ProtocolError) as error:
            unreadable.append(Unreadable(one.noted, f"{type(error).__name__}: {error}"))
    return explained, unreadable


def _open_transaction(log: Log) -> OpenTransaction | None:
    first_offset = log.producers.first_open_offset
    if first_offset is None:
        return None
    owner = next(
        one.producer_id for one in log.producers if one.transaction_first_offset == first_offset
    )
    return OpenTransaction(owner, first_offset)
