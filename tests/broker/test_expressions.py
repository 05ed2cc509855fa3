"""What takes long to match is matched in a thread, while the loop serves others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import re2

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


class Watched:
    """A compiled expression that notes in which threads it is matched."""

    def __init__(self, pattern: Any, threads: set[int]) -> None:
        self._pattern, self._threads = pattern, threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pattern, name)

    def fullmatch(self, name: str) -> Any:
        self._threads.add(threading.get_ident())
        return self._pattern.fullmatch(name)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail where an expression is matched in the thread of the loop, or not at all."""
    found: set[int] = set()
    compiled = re2.compile
    monkeypatch.setattr(re2, "compile", lambda *given: Watched(compiled(*given), found))
    yield
    assert found
    assert threading.get_ident() not in found


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
@pytest.mark.usefixtures("others")
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

        await both()


@pytest.mark.slow
@pytest.mark.usefixtures("others")
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

        await assigned()
        assert _matched(broker) == [{f"{'a' * 240}7b"}]


def _matched(broker: Any) -> list[set[str]]:
    return [
        set(resolved.topics)
        for shard in broker.groups.runtime.machines
        for group in shard.consumers.groups.values()
        for resolved in group.resolved.values()
    ]
