"""Explains why a log is cleaned now or not, and when it will be: pure, over frozen facts.

Every condition has its value, its threshold and the moment at which it will be met, if time alone
meets it. The answer comes from the functions by which the cleaner itself decides
(cleaner/rules/policy.py, cleaner/runtime/progress.py); the conditions only explain it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from odradek.cleaner.rules.due import announced_ms, first_moment
from odradek.cleaner.rules.facts import ActiveSegment, LogFacts, SegmentFacts
from odradek.cleaner.rules.policy import DirtyRange, Reason, dirty_range
from odradek.cleaner.rules.quarantine import Standing
from odradek.config.values import INT64_MAX
from odradek.dataclass import dataclass

Value = str | int | float | bool | None


class Verdict(Enum):
    """The future of a log, if nothing is appended to it and no setting changes."""

    RUNNING = "it is being cleaned"
    NOW = "it will be cleaned as soon as a thread is free"
    LATER = "it will be cleaned later"
    NOT = "it will not be cleaned as things are"


class Kind(Enum):
    """The role of a condition."""

    NEEDED = "all of these are needed"
    REASON = "one of these is reason enough"
    LIMIT = "these hold a part of the log back"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: met when the value satisfies the threshold."""

    kind: Kind
    name: str  # the name of a setting, if the condition has one
    is_met: bool
    value: Value
    threshold: Value
    text: str
    met_at_ms: int | None = None  # None when it is met, or when time alone does not meet it


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of the cleaner."""

    is_enabled: bool
    wanted: int
    alive: int

    @property
    def can_clean(self) -> bool:
        """Whether there is a thread that could clean a log."""
        return self.is_enabled and self.alive > 0


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The open transaction that holds back the last stable offset."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts that the answer depends on, at one moment."""

    log: LogFacts
    checkpoint: int | None
    standing: Standing
    threads: Threads
    active: ActiveSegment
    transaction: OpenTransaction | None
    horizon_ms: int | None  # when the first tombstone or marker left by the last run expires


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a log is cleaned, when and why, or why not."""

    verdict: Verdict
    reason: Reason | None  # the reason for cleaning it now
    due_ms: int | None  # None when time alone causes no cleaning
    sentence: str
    dirty: DirtyRange
    conditions: tuple[Condition, ...]


def explain(facts: Facts, now_ms: int) -> Answer:
    """Return whether a log will be cleaned, and every condition for it."""
    log, standing = facts.log, facts.standing
    dirty = dirty_range(log, facts.checkpoint, now_ms, facts.horizon_ms)
    reason = standing.reason(log, dirty)
    conditions = (
        *_needed(facts, dirty, now_ms),
        *_reasons(facts, dirty, now_ms),
        *_limits(facts, dirty, now_ms),
    )
    can_be = log.config.compact and facts.threads.can_clean
    due = None
    if can_be:
        due = announced_ms(
            log, facts.checkpoint, now_ms, standing, facts.active, horizon_ms=facts.horizon_ms
        )
    if standing.is_running:
        verdict = Verdict.RUNNING
    elif can_be and standing.may_clean(now_ms) and reason is not None:
        verdict = Verdict.NOW
    else:
        verdict = Verdict.LATER if due is not None else Verdict.NOT
    sentence = _sentence(verdict, reason, conditions)
    return Answer(verdict, reason, due, sentence, dirty, conditions)


def _sentence(
    verdict: Verdict, reason: Reason | None, conditions: tuple[Condition, ...]
) -> str:
    if verdict is Verdict.RUNNING:
        return str(verdict.value)
    if verdict is Verdict.NOW and reason is not None:
        return f"{verdict.value}: {reason.value}"
    needed = [one for one in conditions if one.kind is Kind.NEEDED and not one.is_met]
    reasons = [one for one in conditions if one.kind is Kind.REASON]
    lacking = [one.text for one in needed]
    if not needed and not any(one.is_met for one in reasons):
        lacking = [one.text for one in reasons if one.met_at_ms] or [
            one.text for one in reasons[:1]
        ]
    return f"{verdict.value}: {', and '.join(lacking)}"


def _needed(facts: Facts, dirty: DirtyRange, now_ms: int) -> Iterator[Condition]:
    log, standing, threads = facts.log, facts.standing, facts.threads
    policy = ",".join(sorted(log.config.cleanup_policy)) or "none"
    yield Condition(
        Kind.NEEDED, "cleanup.policy", log.config.compact, policy, "compact",
        "the topic is compacted" if log.config.compact else "the topic is not compacted",
    )  # fmt: skip
    yield Condition(
        Kind.NEEDED, "log.cleaner.enable", threads.is_enabled, threads.is_enabled, True,
        "the cleaner is switched on" if threads.is_enabled else "the cleaner is switched off",
    )  # fmt: skip
    yield Condition(
        Kind.NEEDED, "log.cleaner.threads", threads.alive > 0, threads.alive, 1,
        f"{threads.alive} of {threads.wanted} threads run",
    )  # fmt: skip
    if standing.pause_count:
        yield Condition(
            Kind.NEEDED, "paused", False, standing.pause_count, 0, "its cleaning is paused"
        )
    if standing.leased_to is not None:
        yield Condition(
            Kind.NEEDED, "leased", False, standing.leased_to, None,
            standing.lease_sentence,
        )  # fmt: skip
    entry = standing.quarantined
    if entry is not None:
        is_over = now_ms >= entry.retry_at_ms
        times = "once" if entry.failures == 1 else f"{entry.failures} times in a row"
        yield Condition(
            Kind.NEEDED, "quarantine", is_over, entry.failures, 0,
            f"its cleaning has failed {times}, the last time by {entry.exception}",
            None if is_over else entry.retry_at_ms,
        )  # fmt: skip
        return  # it is tried again even if there is nothing to clean
    has_some = dirty.cleanable_bytes > 0 or dirty.expired_ms is not None
    at_ms = None if has_some else first_moment(
        log, facts.checkpoint, now_ms, lambda one: one.cleanable_bytes > 0
    )  # fmt: skip
    if has_some:
        text = "there is something to clean"
    elif dirty.first_dirty_offset >= log.log_end_offset:
        text = "nothing is dirty"
    else:
        text = f"{dirty.bound.value} holds back all that is dirty"
    yield Condition(Kind.NEEDED, "dirty bytes", has_some, dirty.cleanable_bytes, 1, text, at_ms)


def _reasons(facts: Facts, dirty: DirtyRange, now_ms: int) -> Iterator[Condition]:
    log, checkpoint = facts.log, facts.checkpoint
    if facts.standing.quarantined is not None:
        text = "a cleaning that failed is tried again, however dirty the log is"
        yield Condition(Kind.REASON, "retry", True, None, None, text)
    wanted, ratio = log.config.min_cleanable_dirty_ratio, dirty.cleanable_ratio
    is_met = dirty.cleanable_bytes > 0 and ratio > wanted
    yield Condition(
        Kind.REASON, "min.cleanable.dirty.ratio", is_met, ratio, wanted,
        f"{100 * ratio:.1f}% of it is dirty, "
        f"{'more' if is_met else 'which has to be more'} than {100 * wanted:g}%",
        None if is_met else first_moment(
            log, checkpoint, now_ms,
            lambda one: one.cleanable_bytes > 0 and one.cleanable_ratio > wanted,
        ),
    )  # fmt: skip
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms < INT64_MAX:
        is_met = dirty.cleanable_bytes > 0 and dirty.overdue_ms > 0
        at_ms = None if is_met else first_moment(
            log, checkpoint, now_ms, lambda one: one.cleanable_bytes > 0 and one.overdue_ms > 0
        )  # fmt: skip
        text = "the oldest dirty record is older than max.compaction.lag.ms"
        if not is_met:
            text = "no sealed segment has a dirty record older than max.compaction.lag.ms"
        yield Condition(
            Kind.REASON, "max.compaction.lag.ms", is_met, dirty.overdue_ms, 0, text, at_ms
        )
    is_met = dirty.expired_ms is not None
    horizon_ms = facts.horizon_ms
    if is_met or horizon_ms is not None:
        text = "tombstones or markers have expired" if is_met else (
            "tombstones or markers have not expired yet"
        )  # fmt: skip
        at_ms = first_moment(
            log, checkpoint, now_ms, lambda one: one.expired_ms is not None,
            horizon_ms=horizon_ms,
        )  # fmt: skip
        yield Condition(
            Kind.REASON, "delete.retention.ms", is_met, horizon_ms, now_ms, text,
            None if is_met else at_ms,
        )  # fmt: skip


def _limits(facts: Facts, dirty: DirtyRange, now_ms: int) -> Iterator[Condition]:
    log = facts.log
    young = _first_young(log, dirty.first_dirty_offset, now_ms)
    if log.config.min_compaction_lag_ms > 0:
        if young is None:
            text, offset, at_ms = "no sealed dirty segment is too young", None, None
        else:
            assert young.largest_timestamp is not None
            offset = young.base_offset
            at_ms = young.largest_timestamp + log.config.min_compaction_lag_ms
            at_ms = at_ms if at_ms <= INT64_MAX else None
            text = f"records from offset {offset:,} on are too young"
        yield Condition(
            Kind.LIMIT, "min.compaction.lag.ms", young is None, offset, None, text, at_ms
        )
    is_stable = log.last_stable_offset >= log.log_end_offset
    text = "no transaction is open"
    if not is_stable:
        text = f"records from offset {log.last_stable_offset:,} on are not stable"
        if facts.transaction is not None:
            text = (
                f"producer id {facts.transaction.producer_id} has a transaction open since "
                f"offset {facts.transaction.first_offset:,}"
            )
    yield Condition(
        Kind.LIMIT, "last stable offset", is_stable, log.last_stable_offset, log.log_end_offset,
        text,
    )  # fmt: skip
    active = facts.active
    is_empty = active.size_bytes == 0
    # Once it is old enough the next append seals it; only the lag seals it without an append.
    at_ms = active.rolls_at_ms if active.overdue_at_ms is None else active.overdue_at_ms
    text = "the active segment is empty" if is_empty else (
        f"records from offset {active.base_offset:,} on are sealed after {active.bytes_left:,} "
        f"more bytes, or {'by the first append after' if active.overdue_at_ms is None else 'at'} "
        "their time"
    )  # fmt: skip
    yield Condition(
        Kind.LIMIT, "active segment", is_empty, active.size_bytes, 0, text,
        None if is_empty else at_ms,
    )  # fmt: skip


def _first_young(log: LogFacts, first_dirty: int, now_ms: int) -> SegmentFacts | None:
    """Return the first sealed dirty segment that min.compaction.lag.ms holds back."""
    old_ms = now_ms - log.config.min_compaction_lag_ms
    ends = [segment.base_offset for segment in log.segments[1:]]
    for segment, end in zip(log.segments, ends, strict=False):
        stamp = segment.largest_timestamp
        if end > first_dirty and stamp is not None and stamp > old_ms:
            return segment
    return None
