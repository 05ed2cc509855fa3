"""Where share groups stand, on /metrics: what DescribeShareGroupOffsets tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.observability.exposition.group_rows import read_groups
from odradek.broker.observability.exposition.groups import (
    LAG,
    LEFT_OUT,
    SHARE_LAG,
    SHARE_START,
    group_families,
)
from odradek.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from tests.broker.live import client, live, on_uvloop
from tests.broker.share_peers import ShareBroker
from tests.broker.test_shares_live import ACCEPT, LONG_MS, ORDERS, REJECT, SETTINGS, script


def play(one: ShareBroker) -> None:
    """Have 12 records: 0 and 1 are accepted, 4 and 5 rejected, 2, 3 and 6 are a member's."""
    one.create("orders", 2)
    one.initialize("g", "orders", 0, 0)
    one.initialize("g", "orders", 1, -1)
    one.initialize("h", "orders", 0, 0)
    one.produce("orders", 12)
    member = one.member("g", "a")
    member.fetch(ORDERS, max_wait_ms=LONG_MS, min_bytes=1, max_records=7)
    for first, last, kind in ((0, 1, ACCEPT), (4, 5, REJECT)):
        told = member.acknowledge({ORDERS: [(first, last, [kind])]})
        assert told["partitions"][ORDERS] == (0, None)


async def shown(broker: Any) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values of each family, by labels."""
    rows = await read_groups(broker)
    return {
        sample.name: {
            tuple(one.labels.values()): one.value
            for one in family.samples
            if one.name == sample.name
        }
        for family in group_families(rows, {})
        for sample in family.samples
    }


@on_uvloop
async def test_the_lag_of_share_groups_equals_their_description(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        await script(broker, play)
        topics = [DescribeShareGroupOffsetsRequestTopic(topic_name="orders", partitions=[0, 1])]
        asked = DescribeShareGroupOffsetsRequest(
            groups=[
                DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=topics)
                for name in "gh"
            ]
        )
        told = {
            (group.group_id, topic.topic_name, str(one.partition_index)): one
            for group in (await one.ask(asked, version=1)).groups
            for topic in group.topics
            for one in topic.partitions
        }
        found = await shown(broker)
        assert found[SHARE_LAG.name] == {
            key: one.lag for key, one in told.items() if one.lag != -1
        }
        assert found[SHARE_LAG.name] == {("g", "orders", "0"): 8, ("h", "orders", "0"): 12}
        assert found[SHARE_START.name] == {("g", "orders", "0"): 2, ("h", "orders", "0"): 0}
        assert LAG.name not in found


@pytest.mark.parametrize(("limit", "kept"), [(0, 0), (2, 1), (9, 2)])
def test_too_many_are_left_out_and_counted(limit: int, kept: int, tmp_path: Path) -> None:
    @on_uvloop
    async def main() -> None:
        settings = {**SETTINGS, "odradek.group.series.max": str(limit)}
        async with live(tmp_path, settings) as broker:
            await script(broker, play)
            found = await shown(broker)
            assert len(found.get(SHARE_LAG.name, {})) == kept  # one is not known yet
            assert found[LEFT_OUT.name] == {(): max(3 - limit, 0)}

    main()
