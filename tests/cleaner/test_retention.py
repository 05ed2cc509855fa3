"""What retention deletes: by age, size and log start offset, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from odradek.cleaner.rules.facts import SegmentFacts
from odradek.cleaner.rules.retention import Deletion, plan_deletion
from odradek.cleaner.runtime import deleter as deleter_module
from odradek.cleaner.runtime.deleter import check_retention
from odradek.config.broker import BrokerConfig
from odradek.config.topic import TopicConfig
from odradek.storage.log import Log
from tests.cleaner.worlds import World, pairs

NOW = 1_000_000
FOREVER = replace(TopicConfig(), retention_ms=-1, retention_bytes=-1)


def plan(
    config: TopicConfig,
    *segments: tuple[int, int, int],  # base offset, size, largest timestamp
    start: int = 0,
    end: int = 100,
    high_watermark: int = 100,
) -> Deletion | None:
    return plan_deletion(
        config,
        (SegmentFacts(base, size, largest) for base, size, largest in segments),
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=high_watermark,
        size_bytes=sum(size for _, size, _ in segments),
        now_ms=NOW,
    )


def count(deletion: Deletion | None) -> int:
    return deletion.count if deletion else 0


def test_nothing_goes_without_a_limit() -> None:
    assert plan(FOREVER, (0, 10, 0), (10, 10, 0)) is None


@pytest.mark.parametrize(("age_ms", "gone"), [(999, 0), (1000, 0), (1001, 1)])
def test_a_segment_goes_when_its_youngest_record_is_past_retention(age_ms: int, gone: int) -> None:
    config = replace(FOREVER, retention_ms=1000)
    assert count(plan(config, (0, 10, NOW - age_ms), (10, 10, NOW))) == gone


def test_a_young_segment_protects_the_older_ones_behind_it() -> None:
    config = replace(FOREVER, retention_ms=1000)
    assert plan(config, (0, 10, NOW), (10, 10, 0), (20, 10, NOW)) is None


def test_the_active_segment_goes_too_when_all_of_it_is_old() -> None:
    config = replace(FOREVER, retention_ms=1000)
    assert count(plan(config, (0, 10, 0), (10, 10, 0))) == 2


def test_an_empty_active_segment_stays() -> None:
    config = replace(FOREVER, retention_ms=1000)
    assert count(plan(config, (0, 10, 0), (100, 0, 0))) == 1


@pytest.mark.parametrize(
    ("retention_bytes", "gone"), [(30, 0), (29, 0), (20, 1), (19, 1), (10, 2), (0, 3)]
)
def test_size_retention_leaves_at_least_as_much_as_it_says(
    retention_bytes: int, gone: int
) -> None:
    config = replace(FOREVER, retention_bytes=retention_bytes)
    assert count(plan(config, (0, 10, 0), (10, 10, 0), (20, 10, 0))) == gone


@pytest.mark.parametrize("policy", [set(), {"compact"}, {"delete"}, {"compact", "delete"}])
def test_segments_before_the_log_start_go_under_every_policy(policy: set[str]) -> None:
    config = replace(FOREVER, cleanup_policy=frozenset(policy))
    segments = (0, 10, NOW), (10, 10, NOW), (20, 10, NOW)
    assert count(plan(config, *segments, start=9)) == 0
    assert count(plan(config, *segments, start=10)) == 1
    assert count(plan(config, *segments, start=100)) == 2


@pytest.mark.parametrize(
    ("policy", "gone"), [(set(), 0), ({"compact"}, 0), ({"delete"}, 2), ({"compact", "delete"}, 2)]
)
def test_age_and_size_count_for_the_delete_policy_only(policy: set[str], gone: int) -> None:
    config = replace(
        TopicConfig(), cleanup_policy=frozenset(policy), retention_ms=0, retention_bytes=0
    )
    assert count(plan(config, (0, 10, 0), (10, 10, 0))) == gone


def test_nothing_beyond_the_high_watermark_goes() -> None:
    config = replace(FOREVER, retention_ms=0)
    assert count(plan(config, (0, 10, 0), (10, 10, 0), (20, 10, 0), high_watermark=19)) == 1


def test_segments_after_the_first_that_stays_are_not_looked_at() -> None:
    asked: list[int] = []

    def facts() -> Iterator[SegmentFacts]:
        for base in range(0, 100, 10):
            asked.append(base)
            yield SegmentFacts(base, 10, NOW)

    plan_deletion(
        TopicConfig(), facts(), log_start_offset=0, log_end_offset=100, high_watermark=100,
        size_bytes=100, now_ms=NOW,
    )  # fmt: skip
    assert asked == [0, 10]


def test_a_deletion_names_its_reasons() -> None:
    config = replace(TopicConfig(), retention_ms=1000, retention_bytes=15)
    deletion = plan(
        config, (0, 10, NOW), (10, 10, NOW), (20, 10, 0), (30, 10, NOW), start=10
    )
    assert deletion == Deletion(
        3, 30, "log start offset 10, retention.bytes=15, retention.ms=1000"
    )


def test_old_segments_of_a_log_are_deleted_and_the_log_start_moves(tmp_path: Path) -> None:
    world = World(tmp_path, replace(TopicConfig(), retention_ms=1000))
    for text in ("a:1 b:1", "a:2", "b:2"):
        world.append(pairs(text))
        world.roll()
        world.now_ms += 400
    first_bytes = world.log.segments[0].size_bytes
    assert check_retention(world.log, world.now_ms) == first_bytes
    assert world.log.log_start_offset == 2
    assert world.values() == ["a:2", "b:2"]
    world.now_ms += 10_000
    check_retention(world.log, world.now_ms)
    assert world.values() == []
    assert world.log.log_start_offset == world.log.log_end_offset == 4


@pytest.mark.parametrize("meanwhile", ["nothing", "append", "roll", "delete"])
def test_changes_while_the_age_is_looked_at_are_respected(tmp_path: Path, meanwhile: str) -> None:
    world = World(tmp_path, replace(TopicConfig(), retention_ms=1000))
    world.append(pairs("a:1 b:1"))
    world.roll()
    world.append(pairs("a:2"))
    world.now_ms += 10_000
    find = deleter_module._find_deletion

    def finding(log: Log, now_ms: int) -> Deletion | None:
        found = find(log, now_ms)
        if meanwhile == "append":
            world.append(pairs("a:3"))
        elif meanwhile == "roll":
            world.roll()
            world.append(pairs("a:3"))
        elif meanwhile == "delete":
            log.delete_segments(1, now_ms)
            world.append(pairs("a:3"))
        return found

    deleter = deleter_module.Deleter([world.log], BrokerConfig, lambda: world.now_ms)
    with mock.patch.object(deleter_module, "_find_deletion", finding):
        asyncio.run(deleter.check_all())
    assert ("a:3" in world.values()) == (meanwhile != "nothing")
    asyncio.run(deleter.check_all())
    assert "a:1" not in world.values()
    assert ("a:3" in world.values()) == (meanwhile != "nothing")
