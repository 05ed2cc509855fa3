"""The cleaner's answers as JSON values: Kafka's words, enums by name with their meanings.

Of a log whose segments are in an object store they have its levels, requests and their costs, by
the prices of the settings; of others they have null there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.broker.web.cleaner_facts import ExplainedLog
from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.policy import DirtyRange
from odradek.cleaner.rules.quarantine import Quarantined
from odradek.cleaner.rules.why import Answer, Verdict
from odradek.cleaner.runtime.asked import Outcome
from odradek.cleaner.runtime.dry_run import Missing
from odradek.cleaner.runtime.plan import Plan
from odradek.cleaner.runtime.pool import PoolStatus
from odradek.cleaner.runtime.progress import Running
from odradek.cleaner.runtime.runs import Run, result_as_json, run_as_json
from odradek.cleaner.runtime.survey import Finding, Unreadable
from odradek.config.broker import BrokerConfig
from odradek.config.option import options_of
from odradek.dataclass import dataclass
from odradek.storage.checkpoints import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.shared.bill import Prices
    from odradek.storage.metering import StoreUse

Json = dict[str, object]

_SETTINGS = ("log.cleaner.", "odradek.cleaner.")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The cleanings that come next: those that only wait for a thread, and later ones.

    `due` has the time at which each log is cleaned, without the logs that could not be read.
    """

    next_up: Sequence[Finding]
    later: Sequence[Finding]
    due: Mapping[TopicPartition, int | None]
    unreadable: Sequence[Unreadable]


def state(
    status: PoolStatus,
    config: BrokerConfig,
    schedule: Schedule,
    *,
    in_progress: Sequence[Running],
    asked: Sequence[TopicPartition],
    now_ms: int,
) -> Json:
    """Show the cleaner's state and its next cleanings."""
    return {
        "now_ms": now_ms,
        "threads": {
            "wanted": status.threads_wanted,
            "alive": status.threads_alive,
            "died": status.threads_died,
            "last_death": status.last_death,
        },
        "settings": {
            one.name: getattr(config, one.attribute)
            for one in options_of(BrokerConfig)
            if one.name.startswith(_SETTINGS)
        },
        "last_choice": dataclasses.asdict(status.last_choice),
        "running": [running(one) for one in in_progress],
        "asked": [{"topic": topic, "partition": number} for topic, number in asked],
        "next": [_brief(one) for one in schedule.next_up],
        "later": [_brief(one) for one in schedule.later],
        "quarantined": [
            quarantined(one, schedule.due.get((one.topic, one.partition), one.retry_at_ms))
            for one in status.quarantined
        ],
        "unreadable": [unread(one) for one in schedule.unreadable],
    }


def plan(
    explained: ExplainedLog, made: Plan, position: int | None, prices: Prices | None
) -> Json:
    """Show the effect of cleaning a log, its time, and what it waits for."""
    finding, answer = explained.finding, explained.answer
    dirty = finding.dirty
    exact = made.exact if isinstance(made.exact, CleanResult) else None
    missing = made.exact if isinstance(made.exact, Missing) else None
    return {
        **_answer(finding, answer, position),
        "clean_bytes": dirty.clean_bytes,
        "cleanable_bytes": dirty.cleanable_bytes,
        "uncleanable_bytes": finding.uncleanable_bytes,
        "at_most": {
            "records": made.bounds.records_max,
            "map_bytes": made.bounds.map_bytes_max,
            "may_spill": made.bounds.may_spill,
            "read_bytes": made.bounds.read_bytes_max,
            "written_bytes": made.bounds.written_bytes_max,
            "store": store_use(_most_requests(explained, made), prices),
        },
        "exact": None if exact is None else result_as_json(exact),
        "exact_missing": None if missing is None else missing.name,
        "exact_missing_because": None if missing is None else missing.value,
    }


def why(explained: ExplainedLog, position: int | None, now_ms: int) -> Json:
    """Show every condition for a log's cleaning."""
    return {
        "now_ms": now_ms,
        **_answer(explained.finding, explained.answer, position),
        "conditions": [
            {**dataclasses.asdict(one), "kind": one.kind.name}
            for one in explained.answer.conditions
        ],
        "levels": levels(explained),
    }


def levels(explained: ExplainedLog) -> Json | None:
    """Show where the records of a log are whose segments are in an object store."""
    if explained.levels is None:
        return None
    found = explained.levels.levels(explained.finding.dirty.first_dirty_offset)
    return {
        "wal": {"bytes": found.wal_bytes},
        **{
            name: {"segments": one.segments, "objects": one.objects, "bytes": one.size_bytes}
            for name, one in (("dirty", found.dirty), ("clean", found.clean))
        },
    }


def outcome(one: Outcome, prices: Prices | None) -> Json:
    """Show the outcome of a requested cleaning."""
    return {
        "topic": one.topic,
        "partition": one.partition,
        "outcome": one.status.name,
        "because": one.because,
        "sentence": f"{one.status.value}: {one.because}",
        "result": None if one.result is None else _result(one.result, prices),
    }


def run(one: Run, prices: Prices | None) -> Json:
    """Show a run of the history."""
    found = run_as_json(one)
    return found if one.result is None else {**found, "result": _result(one.result, prices)}


def quarantined(one: Quarantined, due_ms: int | None) -> Json:
    """Show a partition whose cleaning failed; `due_ms` is None when it is not tried again."""
    return {**dataclasses.asdict(one), "due_ms": due_ms}


def unread(one: Unreadable) -> Json:
    """Show a log that could not be read."""
    state = one.noted.log
    return {"topic": state.topic, "partition": state.partition, "because": one.cause}


def _result(result: CleanResult, prices: Prices | None) -> Json:
    return {**result_as_json(result), "store": store_use(result.store, prices)}


def store_use(use: StoreUse | None, prices: Prices | None) -> Json | None:
    """Show requests to the object store, and their costs."""
    if use is None:
        return None
    return {**dataclasses.asdict(use), "dollars": None if prices is None else prices.dollars(use)}


def _most_requests(explained: ExplainedLog, made: Plan) -> StoreUse | None:
    if explained.levels is None:
        return None
    finding = explained.finding
    end_offset = finding.dirty.first_uncleanable_offset
    bounds = explained.levels.bounds(made.bounds.reads, finding.facts.config, end_offset)
    return bounds.after(made.exact) if isinstance(made.exact, CleanResult) else bounds.use


def _answer(finding: Finding, answer: Answer, position: int | None) -> Json:
    dirty = answer.dirty
    is_queued = answer.verdict is Verdict.NOW or finding.noted.is_asked
    return {
        "topic": finding.topic,
        "partition": finding.partition,
        "verdict": answer.verdict.name,
        "sentence": answer.sentence,
        "reason": answer.reason.name if answer.reason else None,
        "due_ms": answer.due_ms,
        "is_asked": finding.noted.is_asked,
        "queue_position": position if is_queued else None,
        "log_start_offset": finding.facts.log_start_offset,
        **_range(dirty),
        "log_end_offset": finding.facts.log_end_offset,
        "segments": len(finding.facts.segments),
        "dirty_ratio": dirty.cleanable_ratio,
    }


def _range(dirty: DirtyRange) -> Json:
    return {
        "first_dirty_offset": dirty.first_dirty_offset,
        "first_uncleanable_offset": dirty.first_uncleanable_offset,
        "bound": dirty.bound.name,
        "bound_is": dirty.bound.value,
    }


def _brief(finding: Finding) -> Json:
    return {
        "topic": finding.topic,
        "partition": finding.partition,
        "reason": finding.reason.name if finding.reason else None,
        "due_ms": finding.due_ms,
        "dirty_ratio": finding.dirty.cleanable_ratio,
        "cleanable_bytes": finding.dirty.cleanable_bytes,
        "overdue_ms": finding.dirty.overdue_ms,
    }


def running(one: Running) -> Json:
    """Show a cleaning in progress: its bytes read and written, and their maximum."""
    dirty = one.job.dirty
    return {
        "topic": one.job.topic,
        "partition": one.job.partition,
        "reason": one.job.reason.name,
        "began_ms": one.job.now_ms,
        "is_dry_run": one.is_dry_run,
        "read_bytes": one.io.read,
        "written_bytes": one.io.written,
        # As in cleaner/runtime/plan.py: the dirty section is read twice, and all may be written.
        "io_bytes_max": dirty.cleanable_bytes + 2 * dirty.total_bytes,
    }
