"""Why a log is cleaned or not: the explanation agrees with the decision, now and at any moment."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.rules.facts import ActiveSegment, LogFacts, SegmentFacts
from odradek.cleaner.rules.policy import Bound, Reason, dirty_range
from odradek.cleaner.rules.quarantine import Quarantined, Standing
from odradek.cleaner.rules.why import (
    Condition,
    Facts,
    Kind,
    OpenTransaction,
    Threads,
    Verdict,
    explain,
)
from odradek.config.topic import TopicConfig

NOW = 1_000_000
NEVER = 2**63 - 1
COMPACT = TopicConfig(cleanup_policy=frozenset({"compact"}))

stamps = st.integers(NOW - 5_000, NOW + 5_000)
lags = st.sampled_from([0, 1, 500, 3_000, 20_000])


@st.composite
def configs(draw: st.DrawFn) -> TopicConfig:
    policy = draw(st.sampled_from([{"compact"}, {"compact", "delete"}, {"delete"}, set()]))
    return replace(
        TopicConfig(),
        cleanup_policy=frozenset(policy),
        min_cleanable_dirty_ratio=draw(st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0])),
        min_compaction_lag_ms=draw(st.one_of(lags, st.just(NEVER))),
        max_compaction_lag_ms=draw(st.one_of(lags, st.just(NEVER))),
    )


@st.composite
def all_log_facts(draw: st.DrawFn) -> LogFacts:
    """Make a log's facts as read_facts() does: with the timestamps that the settings ask for."""
    config = draw(configs())
    count = draw(st.integers(1, 6))
    bases = list(itertools.accumulate(draw(st.lists(st.integers(1, 20), min_size=count,
                                                    max_size=count))))  # fmt: skip
    segments = tuple(
        SegmentFacts(
            base,
            draw(st.integers(0, 100)),
            draw(stamps) if config.min_compaction_lag_ms > 0 else None,
            draw(st.one_of(st.none(), st.just(-1), stamps))
            if config.max_compaction_lag_ms < NEVER
            else None,
        )
        for base in bases
    )
    end = bases[-1] + draw(st.integers(0, 20))
    start = draw(st.integers(bases[0], end))
    return LogFacts("t", 0, config, start, end, draw(st.integers(start, end)), end, segments)


def failure(retry_at_ms: int) -> Quarantined:
    return Quarantined(
        topic="t",
        partition=0,
        exception="CorruptFile: bad CRC",
        file="f",
        position=7,
        offset=3,
        since_ms=NOW - 10,
        failures=2,
        retry_at_ms=retry_at_ms,
    )


@st.composite
def standings(draw: st.DrawFn) -> Standing:
    failed = failure(draw(st.integers(NOW - 3_000, NOW + 3_000)))
    return Standing(
        draw(st.booleans()),
        draw(st.sampled_from([0, 0, 0, 1])),
        draw(st.sampled_from([None, None, failed])),
    )


@st.composite
def all_facts(draw: st.DrawFn) -> Facts:
    log_facts = draw(all_log_facts())
    active = log_facts.segments[-1]
    return Facts(
        log_facts,
        draw(st.one_of(st.none(), st.integers(0, log_facts.log_end_offset + 3))),
        draw(standings()),
        Threads(draw(st.sampled_from([True, True, False])), 1, draw(st.sampled_from([1, 1, 0]))),
        ActiveSegment(active.base_offset, active.size_bytes, 1000, NOW + 7),
        None,
        draw(st.one_of(st.none(), stamps)),
    )


def is_decided(facts: Facts, now_ms: int) -> bool:
    """Decide as the cleaner's scheduler does."""
    dirty = dirty_range(facts.log, facts.checkpoint, now_ms, facts.horizon_ms)
    return (
        facts.threads.is_enabled
        and facts.threads.alive > 0
        and facts.log.config.compact
        and facts.standing.may_clean(now_ms)
        and facts.standing.reason(facts.log, dirty) is not None
    )


@given(all_facts(), stamps)
def test_it_says_now_exactly_when_the_cleaner_would(facts: Facts, now_ms: int) -> None:
    answer = explain(facts, now_ms)
    assert (answer.verdict is Verdict.NOW) == is_decided(facts, now_ms)
    assert (answer.verdict is Verdict.RUNNING) == facts.standing.is_running


@given(all_facts(), stamps)
def test_a_log_is_due_at_the_first_moment_at_which_it_would_be_cleaned(
    facts: Facts, now_ms: int
) -> None:
    facts = replace(facts, standing=replace(facts.standing, is_running=False))
    due = explain(facts, now_ms).due_ms
    if due is None:
        # The last one is the end of time: a lag without an end has not ended then.
        moments = (now_ms, now_ms + 10**5, now_ms + 10**9, NEVER)
        assert not any(is_decided(facts, at_ms) for at_ms in moments)
        return
    assert due >= now_ms
    assert is_decided(facts, due)
    assert due == now_ms or not is_decided(facts, due - 1)
    for part in range(10):
        assert not is_decided(facts, now_ms + (due - now_ms) * part // 10) or due == now_ms


@given(all_facts(), stamps)
def test_a_condition_is_met_at_the_announced_time_and_no_sooner(facts: Facts, now_ms: int) -> None:
    for condition in explain(facts, now_ms).conditions:
        at_ms = condition.met_at_ms
        if at_ms is None or condition.name == "active segment":  # that is the log's to know
            continue
        assert not condition.is_met and at_ms > now_ms
        assert not find(facts, at_ms - 1, condition).is_met
        if condition.name != "min.compaction.lag.ms":
            assert find(facts, at_ms, condition).is_met


@given(all_facts(), stamps)
def test_min_compaction_lag_lets_the_first_young_segment_go_at_the_announced_time(
    facts: Facts, now_ms: int
) -> None:
    answer = explain(facts, now_ms)
    for condition in answer.conditions:
        if condition.name == "min.compaction.lag.ms" and condition.met_at_ms is not None:
            later = find(facts, condition.met_at_ms, condition)
            before = find(facts, condition.met_at_ms - 1, condition)
            assert before.value == condition.value
            assert later.is_met or later.value != condition.value
    if answer.dirty.bound is Bound.MIN_COMPACTION_LAG:
        assert not find_named(facts, now_ms, "min.compaction.lag.ms").is_met


@given(all_facts(), stamps)
def test_a_log_is_cleaned_when_all_that_is_needed_and_one_reason_is_there(
    facts: Facts, now_ms: int
) -> None:
    answer = explain(facts, now_ms)
    needed = [one.is_met for one in answer.conditions if one.kind is Kind.NEEDED]
    reasons = [one.is_met for one in answer.conditions if one.kind is Kind.REASON]
    is_idle = not facts.standing.is_running
    assert (all(needed) and any(reasons) and is_idle) == (answer.verdict is Verdict.NOW)


@given(all_facts(), stamps, stamps)
def test_a_quarantined_log_is_due_when_its_wait_ends_however_dirty_it_is(
    facts: Facts, now_ms: int, end_ms: int
) -> None:
    compacted = replace(facts.log.config, cleanup_policy=frozenset({"compact"}))
    answer = explain(
        replace(
            facts,
            log=replace(facts.log, config=compacted),
            standing=Standing(quarantined=failure(end_ms)),
            threads=Threads(True, 1, 1),
        ),
        now_ms,
    )
    assert (answer.due_ms, answer.reason) == (max(now_ms, end_ms), Reason.RETRY)
    assert answer.verdict is (Verdict.NOW if now_ms >= end_ms else Verdict.LATER)


def find(facts: Facts, now_ms: int, condition: Condition) -> Condition:
    return find_named(facts, now_ms, condition.name)


def find_named(facts: Facts, now_ms: int, name: str) -> Condition:
    (found,) = [one for one in explain(facts, now_ms).conditions if one.name == name]
    return found


# --- what it says -----------------------------------------------------------------------------


def facts(log_facts: LogFacts, **changes: object) -> Facts:
    active = ActiveSegment(log_facts.segments[-1].base_offset, 10, 990, NOW + 60_000)
    made = Facts(log_facts, None, Standing(), Threads(True, 1, 1), active, None, None)
    return replace(made, **changes)  # type: ignore[arg-type]


def log_facts(
    *segments: SegmentFacts, config: TopicConfig = COMPACT, stable: int = 40
) -> LogFacts:
    return LogFacts("t", 0, config, 0, 40, stable, 40, segments)


TENS = tuple(SegmentFacts(base, 10) for base in (0, 10, 20, 30))


def test_a_dirty_log_is_cleaned_now_and_for_a_reason() -> None:
    answer = explain(facts(log_facts(*TENS)), NOW)
    assert (answer.verdict, answer.reason, answer.due_ms) == (Verdict.NOW, Reason.DIRTY, NOW)
    assert answer.sentence.endswith(Reason.DIRTY.value)


def test_an_open_transaction_is_named() -> None:
    found = find_named(
        facts(log_facts(*TENS, stable=15), transaction=OpenTransaction(7, 15)),
        NOW,
        "last stable offset",
    )
    assert not found.is_met
    assert "producer id 7" in found.text and "offset 15" in found.text


def test_the_sentence_names_the_missing_condition() -> None:
    deleted = log_facts(*TENS, config=TopicConfig())
    assert "not compacted" in explain(facts(deleted), NOW).sentence
    switched_off = facts(log_facts(*TENS), threads=Threads(False, 0, 0))
    assert "switched off" in explain(switched_off, NOW).sentence
    barely = explain(facts(log_facts(*TENS), checkpoint=30), NOW)
    assert barely.verdict is Verdict.NOT and "the active segment" in barely.sentence
    clean = explain(facts(log_facts(*TENS), checkpoint=40), NOW)
    assert "nothing is dirty" in clean.sentence
    failed = failure(NOW + 9)
    ill = explain(facts(log_facts(*TENS), standing=Standing(quarantined=failed)), NOW)
    assert (ill.verdict, ill.due_ms) == (Verdict.LATER, NOW + 9)
    assert "failed 2 times in a row" in ill.sentence and "bad CRC" in ill.sentence


def test_an_overdue_log_is_overdue_a_millisecond_after_its_lag() -> None:
    config = replace(COMPACT, max_compaction_lag_ms=1_000, min_cleanable_dirty_ratio=1.0)
    old = SegmentFacts(0, 10, None, NOW - 500)
    waiting = facts(log_facts(old, SegmentFacts(30, 10, None, NOW), config=config))
    condition = find_named(waiting, NOW, "max.compaction.lag.ms")
    assert condition.met_at_ms == NOW - 500 + 1_000 + 1 == explain(waiting, NOW).due_ms


def test_a_silent_log_is_due_when_its_active_segment_is_sealed_in_time() -> None:
    in_time = TopicConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1000)
    silent = facts(log_facts(*TENS, config=in_time), checkpoint=30)
    assert explain(silent, NOW).verdict is Verdict.NOT
    active = replace(silent.active, size_bytes=9, overdue_at_ms=NOW + 7)
    answer = explain(replace(silent, active=active), NOW)
    assert (answer.verdict, answer.due_ms) == (Verdict.LATER, NOW + 7)
