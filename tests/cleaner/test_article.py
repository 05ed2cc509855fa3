"""The worked example of "Log Compacted Topics in Apache Kafka" (Medium, 2019)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.cleaner.worlds import EAGER, World, pairs


def test_the_example_of_the_article_ends_as_the_article_says(tmp_path: Path) -> None:
    config = replace(EAGER, min_cleanable_dirty_ratio=0.01)
    world = World(tmp_path, config, topic="latest-product-price")
    for at, pair in enumerate(pairs("p3:10 p5:7 p3:11 p6:25 p6:12 p5:14 p5:17")):
        if at:
            world.roll()
        world.append([pair])

    result = world.clean()

    assert result is not None
    assert (result.first_dirty_offset, result.end_offset) == (0, 6)
    assert result.map_keys == 3
    assert world.values() == ["p3:11", "p6:12", "p5:14", "p5:17"]
    assert [segment.base_offset for segment in world.log.segments] == [0, 6]
    checkpoint = (tmp_path / "cleaner-offset-checkpoint").read_text()
    assert checkpoint.splitlines() == ["0", "1", "latest-product-price 0 6"]
