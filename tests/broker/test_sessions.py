"""Fetch sessions beside a plain model of Kafka's rules, over sequences of requests."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.fetch.sessions import (
    EVICTION_MS,
    NO_SESSION,
    FetchSessions,
    Key,
    Session,
    WantedPartition,
    next_epoch,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from odradek.protocol.wire import ZERO_UUID

PARTITIONS_MAX = 4
NEWS = st.tuples(
    st.integers(0, 1),  # high watermark
    st.integers(0, 1),  # log start offset
    st.sampled_from((0, 0, 0, 3)),  # error code
    st.sampled_from((-1, -1, -1, 0)),  # diverging epoch
    st.sampled_from((b"", b"", b"records")),
)


def wanted(*numbers: int, offset: int = 0) -> dict[Key, WantedPartition]:
    return {("t", number): one_wanted(number, offset) for number in numbers}


def one_wanted(number: int, offset: int = 0) -> WantedPartition:
    part = FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1)
    return WantedPartition("t", ZERO_UUID, part)


def partition_data(number: int, news: tuple[int, int, int, int, bytes]) -> PartitionData:
    high_watermark, log_start_offset, error_code, epoch, records = news
    return PartitionData(
        partition_index=number,
        error_code=error_code,
        high_watermark=-1 if error_code else high_watermark,
        log_start_offset=-1 if error_code else log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch),
        aborted_transactions=None,
        records=records,
    )


@dataclass
class Plain:
    """A session in the model."""

    id: int
    numbers: list[int]
    by_id: bool
    is_privileged: bool
    created_ms: int
    used_ms: int
    used_at: int  # the step: which of two in the same millisecond was used before
    epoch: int = 1


class Model:
    """Which sessions there are, as KIP-227 and Kafka's FetchSessionCache have it."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.sessions: dict[int, Plain] = {}
        self.evictions = 0

    def has_room(self, size: int, is_privileged: bool, now_ms: int) -> bool:
        """Return whether a session may begin, making room if one has to go."""
        if size > PARTITIONS_MAX:
            return False
        if len(self.sessions) < self.slots:
            return True
        stale = [one for one in self.sessions.values() if now_ms - one.used_ms > EVICTION_MS]
        by_use = sorted(stale, key=lambda one: one.used_at)
        may_go = [
            one
            for one in self.sessions.values()
            if one.used_ms > one.created_ms + EVICTION_MS
            or (is_privileged and not one.is_privileged)
        ]
        worth_less = [
            one for one in may_go
            if (not one.is_privileged and is_privileged)
            or (one.is_privileged == is_privileged and len(one.numbers) < size)
        ]  # fmt: skip
        by_worth = sorted(
            worth_less, key=lambda one: (one.is_privileged, len(one.numbers), one.id)
        )
        for victim in (by_use or by_worth)[:1]:
            del self.sessions[victim.id]
            self.evictions += 1
            return True
        return False


numbers = st.lists(st.integers(0, 5), max_size=5, unique=True)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), numbers, st.booleans(), st.booleans()),
        st.tuples(
            st.just("resume"),
            st.integers(0, 5),
            st.sampled_from((0, 0, 0, 0, 1, -1)),  # epochs too many
            st.sampled_from((True, True, True, False)),  # whether topics are named as before
            numbers,
            numbers,
        ),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("pass"), st.sampled_from((1, EVICTION_MS, EVICTION_MS + 1))),
    ),
    max_size=40,
)


@given(slots=st.integers(0, 3), steps=steps)
def test_sessions_are_those_of_the_model(slots: int, steps: list[tuple[Any, ...]]) -> None:
    model = Model(slots)
    sessions = FetchSessions(random.Random(1), lambda: slots, lambda: PARTITIONS_MAX)
    ids: list[int] = [77]
    now_ms = 1_000
    for at, (kind, *values) in enumerate(steps):
        match kind:
            case "pass":
                now_ms += values[0]
            case "end":
                session_id = ids[values[0] % len(ids)]
                sessions.end(session_id)
                model.sessions.pop(session_id, None)
            case "begin":
                named, is_privileged, by_id = values
                is_expected = model.has_room(len(named), is_privileged, now_ms)
                session_id = sessions.begin(
                    wanted(*named), now_ms, is_privileged=is_privileged, uses_topic_ids=by_id
                )
                assert (session_id != NO_SESSION) == is_expected
                if session_id != NO_SESSION:
                    assert session_id not in model.sessions
                    assert 0 < session_id < 2**31
                    ids.append(session_id)
                    model.sessions[session_id] = Plain(
                        session_id, list(named), by_id, is_privileged, now_ms, now_ms, at
                    )
            case "resume":
                which, ahead, is_same, named, forgotten = values
                resume(sessions, model, ids[which % len(ids)], ahead, is_same, named, forgotten,
                       now_ms, at)  # fmt: skip
        assert len(sessions) == len(model.sessions) <= slots
        held = sum(len(one.numbers) for one in model.sessions.values())
        assert (sessions.partition_count, sessions.evictions) == (held, model.evictions)


def resume(
    sessions: FetchSessions, model: Model, session_id: int, ahead: int, is_same: bool,
    named: list[int], forgotten: list[int], now_ms: int, at: int,
) -> None:  # fmt: skip
    plain = model.sessions.get(session_id)
    epoch = (plain.epoch if plain else 1) + ahead
    by_id = (plain.by_id if plain else False) == is_same
    found = sessions.resume(
        session_id, epoch, wanted(*named, offset=at), [("t", one) for one in forgotten], now_ms,
        uses_topic_ids=by_id,
    )  # fmt: skip
    if plain is None:
        assert found == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    elif ahead:
        assert found == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    elif not is_same:
        assert found == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    else:
        everything = [*plain.numbers, *(one for one in named if one not in plain.numbers)]
        plain.numbers = [one for one in everything if one not in forgotten]
        plain.epoch, plain.used_ms, plain.used_at = epoch + 1, now_ms, at
        if not 0 < len(plain.numbers) <= PARTITIONS_MAX:
            del model.sessions[session_id]
            too_many = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert found == (too_many if plain.numbers else None)
            return
        assert isinstance(found, Session)
        assert [number for _, number in found.partitions] == plain.numbers
        for one in set(named) - set(forgotten):
            assert found.partitions["t", one].request.fetch_offset == at


def test_all_sessions_have_room_for_so_many_partitions() -> None:
    sessions = FetchSessions(random.Random(1), lambda: 100, lambda: PARTITIONS_MAX)

    def begin(count: int, now_ms: int) -> int:
        return sessions.begin(
            wanted(*range(count)), now_ms, is_privileged=False, uses_topic_ids=False
        )

    def grow(session_id: int, epoch: int, now_ms: int) -> Session | ErrorCode | None:
        return sessions.resume(session_id, epoch, wanted(2), [], now_ms, uses_topic_ids=False)

    with mock.patch("odradek.broker.fetch.sessions.PARTITIONS_TOTAL_MAX", 4):
        first, second = begin(2, 0), begin(2, 1)
        assert begin(1, 2) == NO_SESSION
        assert isinstance(
            sessions.resume(first, 1, {}, [], 3, uses_topic_ids=False), Session
        )
        assert grow(first, 2, 4) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert sessions.partition_count == 2
        third = begin(2, EVICTION_MS)
        assert third != NO_SESSION
        # The second has not been used for two minutes.
        assert begin(2, EVICTION_MS + 2) != NO_SESSION
        assert grow(second, 1, EVICTION_MS + 3) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (len(sessions), sessions.partition_count, sessions.evictions) == (2, 4, 1)


@given(rounds=st.lists(st.lists(NEWS, min_size=3, max_size=3), max_size=6))
def test_a_client_gets_the_news_and_nothing_else(
    rounds: list[list[tuple[int, int, int, int, bytes]]],
) -> None:
    """The answers lead a client to the state that holds, and each says something new."""
    session = Session(1, wanted(0, 1, 2), 0, is_privileged=False, uses_topic_ids=False)
    believed = dict.fromkeys(range(3), (-1, -1))
    for round_news in rounds:
        turns = [number for _, number in session.partitions]
        last = []
        for number in turns:
            data = partition_data(number, round_news[number])
            is_news = session.note(session.partitions["t", number], data, None)
            facts = data.high_watermark, data.log_start_offset
            is_more = bool(data.records or data.error_code or data.diverging_epoch.epoch >= 0)
            assert is_news == (is_more or facts != believed[number])
            believed[number] = (-1, -1) if data.error_code else facts
            last += [number] if data.records else []
        first = [number for number in turns if number not in last]
        assert [number for _, number in session.partitions] == first + last


def test_the_epoch_after_the_last_is_the_first_of_a_session() -> None:
    assert [next_epoch(1), next_epoch(2**31 - 2), next_epoch(2**31 - 1)] == [2, 2**31 - 1, 1]
