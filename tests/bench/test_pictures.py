"""The documentation's pictures: what is drawn is what the broker's files held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from confluent_kafka.admin import AdminClient

from bench.pictures import DELETIONS, PRICES, Shop, before_and_after, life_of_a_tombstone
from bench.pictures_svg import Stored, Strip, draw_strips
from tests.page.conftest import Service

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Run a broker whose cleaner looks often for work."""
    broker = Service(tmp_path, {"log.cleaner.backoff.ms": "50"})
    broker.start()
    yield Shop(broker, AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}))
    broker.stop()


def records(strip: Strip) -> list[Stored]:
    return [record for segment in strip.segments for record in segment]


def test_before_and_after_show_what_a_cleaning_may_do(shop: Shop) -> None:
    before, after = before_and_after(shop)
    assert records(before) == [Stored(n, *record) for n, record in enumerate(PRICES)]
    assert set(records(after)) < set(records(before))
    clean = [record.key for record in records(after) if record.offset < after.clean_up_to]
    assert len(clean) == len(set(clean))
    assert records(after)[-1].offset >= after.clean_up_to, "the active segment is as it was"
    drawn = ElementTree.fromstring(draw_strips([before, after]))
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("p3") == sum(r.key == "p3" for r in records(before) + records(after))


def test_a_tombstone_outlives_the_first_cleaning_and_not_the_second(shop: Shop) -> None:
    strips = life_of_a_tombstone(shop)
    tombstones = [[r for r in records(strip) if r.value is None] for strip in strips]
    assert [len(found) for found in tombstones] == [1, 1, 0]
    (deleted,) = {key for key, value in DELETIONS if value is None}
    assert [any(r.key == deleted and r.value for r in records(strip)) for strip in strips] == [
        True, False, False,
    ]  # fmt: skip
