"""What takes long to match is matched in a thread, while the loop serves others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.coordination.expressions import Matching, compile_expression, is_quick, matched
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from tests.broker.live import client, create, live, on_uvloop, until

# 10,000 steps of a program for each byte of a name.
COSTLY = "(.*.*.*.*.*.*){1000}b"
ORDINARY = "(app|service)-[a-z0-9]+\\.(orders|payments)\\..*"
# Of the time of the matching, for all else that the loop does meanwhile.
LOOP_SHARE_MAX = 0.5


async def cpu_s(work: Awaitable[Any]) -> float:
    """Return the CPU time of the loop's thread until something is done."""
    begun = time.thread_time()
    await work
    return time.thread_time() - begun


def whole_s(name: str, count: int) -> float:
    """Return the CPU time of matching names like one with the costly expression."""
    expression = compile_expression(COSTLY)
    begun = time.thread_time()
    matched(expression, [name])
    return (time.thread_time() - begun) * count


def test_program_and_names_decide_if_an_expression_is_matched_at_once() -> None:
    names = [f"app-{number}.orders.events" for number in range(1_000)]
    assert is_quick(compile_expression("app-.*"), names)
    assert not is_quick(compile_expression(COSTLY), names)


@on_uvloop
async def test_matches_in_slices_what_one_look_at_each_name_matches() -> None:
    matching = Matching()
    names = [f"{'app' if number % 3 else 'b'}-{number}.orders.x" for number in range(3_000)]
    expected = matched(compile_expression(ORDINARY), names)
    assert 0 < len(expected) < len(names)
    both = await asyncio.gather(
        matching.match(compile_expression(COSTLY), ["a" * 400] * 20 + ["ab"]),
        matching.match_all([ORDINARY, "(", "nothing"], names),
    )
    assert both[0] == {"ab"}
    assert both[1] == {ORDINARY: expected, "(": frozenset(), "nothing": frozenset()}
    matching.close()


@pytest.mark.slow
@on_uvloop
async def test_transactions_are_matched_with_a_costly_pattern_beside_others(
    tmp_path: Path,
) -> None:
    settings = {"transaction.state.log.num.partitions": "1"}
    async with live(tmp_path, settings) as broker, client(broker) as one, client(broker) as two:
        names = [letter * 5_000 for letter in "acde"] + ["a" * 5_000 + "b"]
        for name in names:
            init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            assert (await one.ask(init, version=4)).error_code == ErrorCode.NONE
        asked = ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], transactional_id_pattern=COSTLY
        )

        async def others() -> None:
            assert (await two.ask(ApiVersionsRequest(), version=0)).error_code == 0

        async def both() -> None:
            one.send(asked, version=2)
            await others()
            _, answer = await one.receive()
            found = [state.transactional_id for state in answer.transaction_states]
            assert found == [names[-1]]

        assert await cpu_s(both()) < whole_s(names[0], len(names)) * LOOP_SHARE_MAX


@pytest.mark.slow
@on_uvloop
async def test_a_group_gets_the_topics_that_a_costly_expression_matches(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        for number in range(80):
            await create(broker, f"{'a' * 240}{number}{'b' if number == 7 else ''}")
        joining = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_regex=COSTLY, topic_partitions=[],
        )  # fmt: skip

        async def assigned() -> None:
            assert (await one.ask(joining, version=1)).error_code == ErrorCode.NONE
            await until(lambda: _matched(broker))

        assert await cpu_s(assigned()) < whole_s("a" * 240, 80) * LOOP_SHARE_MAX
        assert _matched(broker) == [{f"{'a' * 240}7b"}]


def _matched(broker: Any) -> list[set[str]]:
    return [
        set(resolved.topics)
        for shard in broker.groups.runtime.machines
        for group in shard.consumers.groups.values()
        for resolved in group.resolved.values()
    ]
