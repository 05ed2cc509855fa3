"""Streams whose topics lose records or are gone, on Odradek and on Apache Kafka.

Each step is one that a stream sees whole or not at all: one batch, one topic, the end of one
transaction. Between two steps the stream catches up, so that its batches do not depend on luck.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from tests.pipeline.both import Both, Side
from tests.pipeline.reading import Failed, Played, Stream, batches_of
from tests.pipeline.topics import FIRST_MS, KEPT, numbered
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.interop,
    pytest.mark.timeout(600),
]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_gone_when_a_stream_starts_again(both: Both, fails: bool) -> None:
    def play(side: Side) -> Played:
        names = [f"left-{number}-{fails}" for number in range(2)]
        for name in names:
            side.topics.create(name, **KEPT)
            side.topics.send(name, numbered(5))
        stream = side.reader.stream(
            subscribePattern=f"left-.*-{fails}", startingOffsets="earliest", failOnDataLoss=fails
        )
        stream.run_to_end()
        side.topics.delete(names[0])
        side.topics.send(names[1], numbered(5, first=5))
        return stream.run_to_end()

    _compare(both, play, fails)


def test_a_topic_that_is_deleted_while_a_stream_runs(both: Both) -> None:
    def play(side: Side) -> list[object]:
        for name in ("going-1", "going-2"):
            side.topics.create(name, **KEPT)
            side.topics.send(name, numbered(5))
        stream = side.reader.stream(
            subscribePattern="going-.*", startingOffsets="earliest", failOnDataLoss=False
        )
        stream.start()
        stream.catch_up()
        side.topics.delete("going-1")
        stream.catch_up()
        side.topics.send("going-2", numbered(5, first=5))
        stream.catch_up()
        batches = batches_of(stream.stop())
        return [batches[-1].end, [row for batch in batches for row in batch.rows]]

    ours, kafkas = both.play(play)
    assert kafkas[0] == {"going-2": {"0": 10}}
    assert ours == kafkas


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_were_deleted_before_they_were_read(both: Both, fails: bool) -> None:
    def play(side: Side) -> Played:
        name = f"lost-{fails}"
        stream = _read_once(side, name, fails)
        side.topics.send_each(name, numbered(20, first=10))
        side.topics.delete_records(name, 15)
        return stream.run_to_end()

    _compare(both, play, fails)


@pytest.mark.parametrize("count", [5, 30])
@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_created_again_is_read_or_refused_as_with_kafka(
    both: Both, fails: bool, count: int
) -> None:
    def play(side: Side) -> Played:
        name = f"again-{fails}-{count}"
        stream = _read_once(side, name, fails)
        side.topics.delete(name)
        side.topics.create(name, **KEPT)
        side.topics.send(name, numbered(count, first=100))
        return stream.run_to_end()

    # A topic that is longer than before does not show that it was replaced.
    _compare(both, play, fails and count < 10)


def test_a_stream_waits_until_there_are_enough_offsets_or_it_has_waited_enough(
    both: Both,
) -> None:
    def play(side: Side) -> Played:
        side.topics.create("enough", **KEPT)
        side.topics.send("enough", numbered(5))
        patient = {"minOffsetsPerTrigger": 20, "startingOffsets": "earliest"}
        stream = side.reader.stream(subscribe="enough", maxTriggerDelay="1h", **patient)
        stream.start()
        for first in (5, 10, 15, 20, 25, 30):
            stream.catch_up()
            side.topics.send("enough", numbered(5, first=first))
        stream.catch_up()
        batches = batches_of(stream.stop())
        impatient = side.reader.stream(subscribe="enough", maxTriggerDelay="1s", **patient)
        impatient.start()
        impatient.catch_up()
        side.topics.send("enough", numbered(5, first=35))
        wait_until(lambda: impatient.count_rows() == 40, "the delay is over")
        impatient.catch_up()
        return batches + batches_of(impatient.stop())

    ours, kafkas = both.play(play)
    assert [len(batch.rows) for batch in batches_of(kafkas)] == [5, 20, 35, 5]
    assert ours == kafkas


def test_the_reader_that_joins_groups_reads_the_same(both: Both) -> None:
    """The source's older way to find offsets: a consumer that subscribes, so that it joins."""
    conf = both.kafka.reader.spark.conf
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    conf.set(setting, "true")

    def play(side: Side) -> list[object]:
        side.topics.create("joined", 2, **KEPT)
        side.topics.send("joined", numbered(20, partitions=2))
        group = f"readers-of-{side.name}"  # Spark keeps consumers by group, whatever the broker
        options = {"startingOffsets": "earliest", "kafka__group__id": group}
        stream = side.reader.stream(subscribe="joined", maxOffsetsPerTrigger=8, **options)
        state: list[object] = [
            side.reader.batch(subscribe="joined", **options),
            side.reader.batch(subscribePattern="join.*", groupIdPrefix="prefixed"),
            side.reader.batch(assign={"joined": [1]}, startingTimestamp=FIRST_MS + 80),
            stream.run_to_end(),
        ]
        groups = [name.replace(side.name, "") for name in side.topics.groups()]
        return [*state, [name for name in groups if name.startswith("readers")]]

    try:
        ours, kafkas = both.play(play)
    finally:
        conf.unset(setting)
    assert not any(isinstance(one, Failed) for one in kafkas)
    assert ours == kafkas


def _read_once(side: Side, name: str, fails: bool) -> Stream:
    """Make a topic of ten records, and a stream that has read them."""
    side.topics.create(name, **KEPT)
    side.topics.send_each(name, numbered(10))
    stream = side.reader.stream(
        subscribe=name, startingOffsets="earliest", failOnDataLoss=fails
    )
    stream.run_to_end()
    return stream


def _compare(both: Both, play: Callable[[Side], Played], fails: bool) -> None:
    ours, kafkas = both.play(play)
    assert isinstance(kafkas, Failed) == fails, kafkas
    assert ours == kafkas
