"""Fetches within sessions (KIP-227): what is left out, who is told of an error, what may end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.apis import fetch
from odradek.broker.composition import Broker
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from odradek.storage.log import Log
from tests.broker.live import append, batch, client, create, live, on_uvloop, until
from tests.broker.test_fetch import (
    LAST,
    LONG_MS,
    context_of,
    part,
    parts_of,
    request,
    send,
    values,
)
from tests.broker.test_read_committed import end, write

FIRST_WITH, LAST_BY_NAME, FIRST_BY_ID = 7, 12, 13
PARTITIONS = 3


def ask(broker: Broker, asked: FetchRequest, version: int = LAST) -> FetchResponse:
    """Return what is answered at once."""
    answer = fetch.handle(broker, context_of(broker, version), asked)
    assert isinstance(answer, FetchResponse)
    return answer


def begin(broker: Broker, topic: Topic, *numbers: int, version: int = LAST) -> int:
    """Begin a session at the start of some partitions."""
    named = {(topic.name, topic.topic_id): [part(number) for number in numbers]}
    answer = ask(broker, request(named, session=(0, 0), min_bytes=0), version)
    assert answer.error_code == 0
    return answer.session_id


def told(answer: FetchResponse) -> list[int]:
    assert answer.error_code == 0
    return [one.partition_index for one in parts_of(answer)]


steps = st.lists(
    st.tuples(
        st.lists(
            st.one_of(
                st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 300)),
                st.tuples(st.just("open"), st.integers(0, 2), st.integers(1, 2)),
                st.tuples(st.just("end"), st.integers(0, 2), st.integers(1, 2)),
                st.tuples(st.just("trim"), st.integers(0, 2), st.integers(0, 9)),
                st.tuples(st.just("roll"), st.integers(0, 2), st.just(0)),
                st.tuples(st.just("publish"), st.just(0), st.just(0)),
            ),
            max_size=3,
        ),
        # Offsets, as distances from the end.
        st.dictionaries(st.integers(0, 3), st.sampled_from((0, 0, 2, 5)), max_size=2),
        st.lists(st.integers(0, 3), max_size=1),  # forgotten
        st.sampled_from((0, 0, 0, 1)),  # isolation
        st.sampled_from((1 << 20, 1 << 20, 300, 0, -1)),  # max_bytes
        st.sampled_from((-1, -1, -1, -1, 0)),  # replica
    ),
    max_size=12,
)


def change(log: Log, kind: str, value: int) -> None:
    match kind:
        case "append":
            append(log, batch(bytes(value)))
        case "open":
            write(log, value, b"v")
        case "end" if log.producers.get(value) is not None:
            end(log, value, commit=value == 1)
        case "trim":
            log.advance_start_offset(max(log.log_start_offset, log.log_end_offset - value))
        case "roll":
            log.roll(0)


@on_uvloop
async def test_a_session_answers_like_requests_for_all_but_with_the_news_alone(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", PARTITIONS)

        @given(steps=steps)
        def check(steps: list[Any]) -> None:
            for log in topic.logs:
                for producer_id in (1, 2):
                    change(log, "end", producer_id)
            follow(broker, topic, steps)

        check()


def follow(broker: Broker, topic: Topic, steps: list[Any]) -> None:
    """Take the steps within one session, with a request for all after each of its own."""
    offsets: dict[int, int] = {}  # in the order of the session
    believed: dict[int, tuple[int, int]] = {}
    session_id = 0
    start = ([], dict.fromkeys(range(PARTITIONS), 1), [], 0, 1 << 20, -1)
    for epoch, (changes, named, forgotten, isolation, max_bytes, replica) in enumerate(
        [start, *steps]
    ):
        for kind, number, value in changes:
            if kind == "publish":
                broker.topics.generation += 1  # as any change of a topic does
            else:
                change(topic.logs[number], kind, value)
        wanted = {at: offset_at(topic, at, back) for at, back in named.items()}
        offsets |= wanted
        for at in forgotten:
            offsets.pop(at, None)
            believed.pop(at, None)
        if not offsets:
            return
        asked = asking(topic, wanted, isolation, max_bytes, replica)
        asked.session_id, asked.session_epoch = session_id, epoch
        asked.forgotten_topics_data = [
            ForgottenTopic(topic_id=topic.topic_id, partitions=forgotten)
        ]
        answer = ask(broker, asked)
        everything = parts_of(ask(broker, asking(topic, offsets, isolation, max_bytes, replica)))
        expected = [one for one in everything if is_news(one, believed)]
        assert [plain(one) for one in parts_of(answer)] == [plain(one) for one in expected]
        for one in everything if epoch else ():
            if one.records:
                offsets[one.partition_index] = offsets.pop(one.partition_index)
        session_id = session_id or answer.session_id
        assert answer.session_id == session_id > 0
        believed = {at: facts for at, facts in believed.items() if at in offsets}


def offset_at(topic: Topic, number: int, back: int) -> int:
    return max(topic.logs[number].log_end_offset - back, 0) if number < PARTITIONS else 0


def asking(
    topic: Topic, offsets: dict[int, int], isolation: int, max_bytes: int, replica: int
) -> FetchRequest:
    parts = [part(at, offset) for at, offset in offsets.items()]
    asked = request(
        {("", topic.topic_id): parts}, isolation=isolation, max_bytes=max_bytes, min_bytes=0
    )
    asked.replica_state = ReplicaState(replica_id=replica)
    return asked


def is_news(one: PartitionData, believed: dict[int, tuple[int, int]]) -> bool:
    facts = one.high_watermark, one.log_start_offset
    is_new = believed.get(one.partition_index, (-1, -1)) != facts
    believed[one.partition_index] = (-1, -1) if one.error_code else facts
    return is_new or bool(one.records) or one.error_code != 0


def plain(one: PartitionData) -> tuple[Any, ...]:
    return (
        one.partition_index, one.error_code, one.high_watermark, one.last_stable_offset,
        one.log_start_offset, one.aborted_transactions, bytes(one.records or b""),
    )  # fmt: skip


@on_uvloop
async def test_a_session_goes_on_after_a_request_that_breaks_its_rules(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        session_id = begin(broker, topic, 0)
        for epoch, version, code in (
            (2, LAST, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            (1, LAST_BY_NAME, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        ):
            asked = request({}, session=(session_id, epoch), wait_ms=LONG_MS)
            answer = await send(broker, asked, version)
            assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])
        answer = ask(broker, request({}, session=(session_id, 1), min_bytes=0))
        assert (answer.error_code, answer.session_id) == (0, session_id)


@pytest.mark.parametrize("version", [FIRST_WITH, LAST_BY_NAME, FIRST_BY_ID, LAST])
def test_a_session_ends_when_it_is_asked_to_or_has_nothing_left(
    tmp_path: Path, version: int
) -> None:
    @on_uvloop
    async def main() -> None:
        async with live(tmp_path) as broker:
            topic = await create(broker, "orders")
            last = request({}, session=(begin(broker, topic, 0, version=version), -1))
            emptied = request({}, session=(begin(broker, topic, 0, version=version), 1))
            emptied.forgotten_topics_data = [
                ForgottenTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[0])
            ]
            replaced = request({}, session=(begin(broker, topic, 0, version=version), 0))
            for asked, count in ((last, 2), (emptied, 1), (replaced, 1)):
                answer = ask(broker, asked, version)
                assert (answer.error_code, answer.responses) == (0, [])
                assert len(broker.sessions) == count

    main()


@on_uvloop
async def test_a_session_keeps_the_name_of_a_topic_whose_id_is_gone(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        old = await create(broker, "orders")
        session_id = begin(broker, old, 0)
        await broker.topics.delete([old.topic_id])
        for epoch, code in (
            (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (2, ErrorCode.INCONSISTENT_TOPIC_ID),
        ):
            (one,) = parts_of(ask(broker, request({}, session=(session_id, epoch))))
            assert one.error_code == code
            await create(broker, "orders")


@on_uvloop
async def test_an_id_that_is_not_known_yet_is_found_once_there_is_such_a_topic(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        broker.topics._withdraw(topic)
        session_id = begin(broker, topic, 0)
        broker.topics._publish(topic)
        append(topic.logs[0], batch(b"a"))
        (one,) = parts_of(ask(broker, request({}, session=(session_id, 1))))
        assert values(one) == [b"a"]


@on_uvloop
async def test_a_partition_is_read_again_when_its_offset_changes(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        append(topic.logs[0], batch(b"a"))
        session_id = begin(broker, topic, 0)
        for epoch, (offset, texts) in enumerate(((1, None), (1, None), (0, [b"a"])), start=1):
            asked = request({("", topic.topic_id): [part(0, offset)]}, session=(session_id, epoch))
            assert [values(one) for one in parts_of(ask(broker, asked))] == [texts] * bool(texts)


@on_uvloop
async def test_an_append_to_what_a_session_has_no_news_of_wakes_it(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders", PARTITIONS)
        session_id = begin(broker, topic, 0, 1, 2)
        assert told(ask(broker, request({}, session=(session_id, 1), min_bytes=0))) == []
        one.send(request({}, session=(session_id, 2), wait_ms=LONG_MS), version=LAST)
        await until(lambda: len(broker.purgatory))
        append(topic.logs[1], batch(b"a"))
        (data,) = parts_of((await one.receive())[1])
        assert (data.partition_index, values(data)) == (1, [b"a"])


@on_uvloop
async def test_a_request_that_another_connection_overtakes_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        session_id = begin(broker, topic, 0)
        one.send(request({}, session=(session_id, 1), wait_ms=LONG_MS), version=LAST)
        await until(lambda: len(broker.purgatory))
        ask(broker, request({}, session=(session_id, 2), min_bytes=0))
        append(topic.logs[0], batch(b"a"))
        answer = (await one.receive())[1]
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert (answer.session_id, answer.responses) == (session_id, [])


@on_uvloop
async def test_without_room_a_client_goes_on_without_a_session(tmp_path: Path) -> None:
    settings = {
        "max.incremental.fetch.session.cache.slots": "1",
        "odradek.fetch.session.partitions.max": "2",
    }
    async with live(tmp_path, settings) as broker:
        topic = await create(broker, "orders", PARTITIONS)
        assert begin(broker, topic, 0, 1, 2) == 0
        first = begin(broker, topic, 0, 1)
        assert first
        assert begin(broker, topic, 0) == 0
        asked = request({("", topic.topic_id): [part(2)]}, session=(first, 1))
        assert ask(broker, asked).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(broker.sessions) == 0
