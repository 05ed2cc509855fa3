"""Spark's Kafka source on Odradek and on Apache Kafka: each query comes to the same on both.

What Spark makes of its options is Spark's own affair. Here only the brokers are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from tests.pipeline.both import Both, Side
from tests.pipeline.reading import Failed, Played, Read, batches_of
from tests.pipeline.topics import (
    ABORTED,
    COMPACTED,
    EMPTIED,
    FIRST_MS,
    GONE,
    HELD,
    KEPT,
    PRICES,
    TRANSFERS,
    TRIMMED,
    Sent,
    numbered,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.timeout(600),
]

LATEST, EARLIEST = -1, -2
LATE_MS = FIRST_MS + 1_000_000
COMMITTED = {"kafka__isolation__level": "read_committed"}

READS: Mapping[str, Mapping[str, object]] = {
    "every record": {"subscribe": ",".join((PRICES, COMPACTED, TRANSFERS, ABORTED, HELD))},
    "committed": {"subscribe": ",".join((TRANSFERS, ABORTED, EMPTIED, HELD)), **COMMITTED},
    "no headers": {"subscribe": PRICES, "includeHeaders": "false"},
    "minPartitions": {"subscribe": f"{PRICES},{COMPACTED}", "minPartitions": 11},
    "maxRecordsPerPartition": {"subscribe": f"{PRICES},{COMPACTED}", "maxRecordsPerPartition": 9},
    "assign": {"assign": {PRICES: [0, 2], COMPACTED: [1]}},
    "no such partition": {"assign": {PRICES: [0, 9]}},
    "subscribePattern": {"subscribePattern": "(pri|comp).*"},
    "groupIdPrefix": {"subscribe": PRICES, "groupIdPrefix": "readers"},
    "offsets": {
        "subscribe": PRICES,
        "startingOffsets": {PRICES: {"0": 17, "1": EARLIEST, "2": 2, "3": EARLIEST}},
        "endingOffsets": {PRICES: {"0": 44, "1": LATEST, "2": 3, "3": LATEST}},
    },
    "offsets inside gaps": {
        "subscribe": COMPACTED,
        "startingOffsets": {COMPACTED: {"0": 3, "1": 53}},
        "endingOffsets": {COMPACTED: {"0": 60, "1": 65}},
    },
    "offsets inside transactions": {
        "subscribe": TRANSFERS,
        "startingOffsets": {TRANSFERS: {"0": 13, "1": 1}},
        "endingOffsets": {TRANSFERS: {"0": 19, "1": 4}},
        **COMMITTED,
    },
    "startingTimestamp": {
        "subscribe": PRICES,
        "startingTimestamp": FIRST_MS + 105,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "startingOffsetsByTimestamp": {
        "subscribe": PRICES,
        "startingOffsetsByTimestamp": {
            PRICES: {"0": FIRST_MS + 333, "1": FIRST_MS + 195, "2": FIRST_MS, "3": 0}
        },
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "times inside gaps": {
        "assign": {COMPACTED: [1]},
        "startingTimestamp": FIRST_MS + 25,
        "endingTimestamp": FIRST_MS + 605,
    },
    "times of records that were aborted": {
        "subscribe": f"{TRANSFERS},{ABORTED}",
        "startingTimestamp": FIRST_MS + 205,
        **COMMITTED,
    },
    "times that only markers have": {
        "subscribe": f"{TRANSFERS},{ABORTED}",
        "startingTimestamp": LATE_MS,
    },
    "endingOffsetsByTimestamp": {
        "subscribe": PRICES,
        "endingOffsetsByTimestamp": {
            PRICES: {"0": FIRST_MS + 333, "1": FIRST_MS + 105, "2": LATE_MS, "3": 0}
        },
    },
    "endingTimestamp": {"subscribe": f"{PRICES},{ABORTED}", "endingTimestamp": FIRST_MS + 105},
    "times past the end, strategy latest": {
        "subscribe": PRICES,
        "startingTimestamp": LATE_MS,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "a tail that was aborted": {"subscribe": ABORTED, **COMMITTED},
    "a tail that was aborted and cleaned": {"subscribe": EMPTIED},
    "after the last record": {
        "subscribe": f"{ABORTED},{EMPTIED}",
        "startingOffsets": {ABORTED: {"0": 6}, EMPTIED: {"0": 6}},
        **COMMITTED,
    },
    "deleted records": {"subscribe": f"{TRIMMED},{GONE}"},
    "an offset that was deleted, failOnDataLoss false": {
        "subscribe": f"{TRIMMED},{GONE}",
        "startingOffsets": {TRIMMED: {"0": 3}, GONE: {"0": 3}},
        "failOnDataLoss": "false",
    },
    "an offset past the end, failOnDataLoss false": {
        "subscribe": TRIMMED,
        "startingOffsets": {TRIMMED: {"0": 50}},
        "endingOffsets": {TRIMMED: {"0": 60}},
        "failOnDataLoss": "false",
        "kafkaConsumer__pollTimeoutMs": 1000,
    },
}

FAILURES: Mapping[str, Mapping[str, object]] = {
    "no such topic": {"subscribe": "missing"},
    "times past the end, strategy error": {
        "assign": {PRICES: [0]},
        "startingTimestamp": LATE_MS,
        "startingOffsetsByTimestampStrategy": "error",
    },
    "times that an open transaction hides": {
        "subscribe": HELD,
        "startingTimestamp": FIRST_MS + 60,
        **COMMITTED,
    },
    "an offset that was deleted": {
        "subscribe": TRIMMED,
        "startingOffsets": {TRIMMED: {"0": 3}},
    },
    "offsets of which all were deleted": {
        "subscribe": GONE,
        "startingOffsets": {GONE: {"0": 3}},
    },
    "an end past the end": {
        "subscribe": TRIMMED,
        "endingOffsets": {TRIMMED: {"0": 50}},
        "kafkaConsumer__pollTimeoutMs": 1000,
    },
    "not all partitions": {"subscribe": PRICES, "startingOffsets": {PRICES: {"0": 1}}},
}

STREAMS: Mapping[str, Mapping[str, object]] = {
    "maxOffsetsPerTrigger": {"subscribe": f"{PRICES},{COMPACTED}", "maxOffsetsPerTrigger": 70},
    "batches that lie in gaps, to tails that nobody sees": {
        "subscribe": f"{COMPACTED},{EMPTIED},{ABORTED},{TRANSFERS}",
        "maxOffsetsPerTrigger": 50,
        **COMMITTED,
    },
    "minPartitions": {"subscribe": PRICES, "minPartitions": 7},
    "minOffsetsPerTrigger": {"subscribe": PRICES, "minOffsetsPerTrigger": 1000},
    "subscribePattern": {"subscribePattern": "(pri|comp|trans).*"},
    "assign and offsets": {
        "assign": {PRICES: [0, 1], COMPACTED: [0]},
        "startingOffsets": {PRICES: {"0": 17, "1": LATEST}, COMPACTED: {"0": 51}},
    },
    "times": {
        "subscribe": PRICES,
        "startingTimestamp": FIRST_MS + 105,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "an open transaction": {"subscribe": HELD, **COMMITTED},
    "deleted records": {"subscribe": f"{TRIMMED},{GONE}"},
}


# The full form has all of them; these take longer than they add.
_FULL_FORM = {
    *("no headers", "maxRecordsPerPartition", "assign", "no such partition", "groupIdPrefix"),
    *("startingTimestamp", "endingTimestamp", "times that only markers have"),
    *("offsets inside transactions", "after the last record", "deleted records"),
    *("an end past the end", "subscribePattern", "minOffsetsPerTrigger", "assign and offsets"),
    *("times", "an open transaction"),
}


def _named(queries: Iterable[str]) -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.interop if name in _FULL_FORM else ())
        for name in queries
    ]


def test_the_topics_have_what_the_queries_are_about(both: Both) -> None:
    """Gaps that a cleaning has left, and ends that no reader sees a record of."""
    names = (COMPACTED, ABORTED, EMPTIED)
    ends = both.kafka.topics.ends(*names)
    read = both.kafka.reader.batch(subscribe=",".join(names), **COMMITTED)
    assert isinstance(read, Read)
    offsets = {(name, partition): [] for name in names for partition in ends[name]}
    for _, name, partition, offset, *_ in read.rows:
        offsets[name, partition].append(offset)
    for place in ((COMPACTED, 0), (COMPACTED, 1)):
        assert len(offsets[place]) < ends[place[0]][place[1]] / 2
    for name in (ABORTED, EMPTIED):
        assert ends[name][0] - max(offsets[name, 0]) > 30
    everything = both.kafka.reader.batch(subscribe=f"{ABORTED},{EMPTIED}")
    assert isinstance(everything, Read)
    assert {row[1]: row[3] for row in everything.rows} == {ABORTED: 34, EMPTIED: 4}


@pytest.mark.parametrize("name", _named(READS))
def test_a_batch_is_the_same(both: Both, name: str) -> None:
    ours, kafkas = both.play(lambda side: side.reader.batch(**READS[name]))
    assert isinstance(kafkas, Read), kafkas
    assert ours == kafkas


@pytest.mark.parametrize("name", _named(FAILURES))
def test_a_batch_fails_for_the_same_reason(both: Both, name: str) -> None:
    ours, kafkas = both.play(lambda side: side.reader.batch(**FAILURES[name]))
    assert isinstance(kafkas, Failed)
    assert ours == kafkas


@pytest.mark.parametrize("name", _named(STREAMS))
def test_a_stream_to_the_end_has_the_same_batches(both: Both, name: str) -> None:
    options = {"startingOffsets": "earliest", **STREAMS[name]}
    ours, kafkas = both.play(lambda side: side.reader.stream(**options).run_to_end())
    assert isinstance(kafkas, list), kafkas
    assert kafkas
    assert ours == kafkas


def test_a_time_is_found_past_a_segment_whose_records_were_all_cleaned_away(both: Both) -> None:
    options = {"assign": {COMPACTED: [0]}, "startingTimestamp": FIRST_MS + 5}
    ours, kafkas = both.play(lambda side: side.reader.batch(**options))
    everything, _ = both.play(lambda side: side.reader.batch(assign={COMPACTED: [0]}))
    assert ours == everything
    # Kafka takes an empty segment for one as new as its file, and looks in no other. Then Spark
    # fails, or by the strategy "latest" leaves these records out.
    assert isinstance(kafkas, Failed)
    assert kafkas.message.startswith("No offset matched from request of topic-partition")


# Each step is one that a running stream sees whole or not at all: one batch, one topic, the end of
# one transaction. Then the stream catches up, so that no luck decides where its batches end.


def test_a_stream_goes_on_after_tails_that_nobody_sees(both: Both) -> None:
    def play(side: Side) -> Played:
        side.topics.create("tails", **KEPT)
        side.topics.send("tails", numbered(5))
        stream = side.reader.stream(subscribe="tails", startingOffsets="earliest", **COMMITTED)
        stream.start()
        stream.catch_up()
        for first in (5, 15):
            side.topics.begin("tails", numbered(10, first=first), "tailor")
            stream.catch_up()
            side.topics.end("tails", commits=False, name="tailor")
            stream.catch_up()
        side.topics.send("tails", [Sent(b"seen")])
        stream.catch_up()
        side.topics.begin("tails", numbered(10, first=25), "tailor")
        side.topics.send("tails", [Sent(b"hidden until the transaction ends")])
        stream.catch_up()
        side.topics.end("tails", commits=True, name="tailor")
        stream.catch_up()
        return stream.stop()

    ours, kafkas = both.play(play)
    assert [len(batch.rows) for batch in batches_of(kafkas)] == [5, 0, 0, 1, 11]
    assert ours == kafkas


def test_a_pattern_finds_topics_and_partitions_while_a_stream_runs(both: Both) -> None:
    def play(side: Side) -> Played:
        side.topics.create("walk-1", **KEPT)
        side.topics.send("walk-1", numbered(5))
        stream = side.reader.stream(subscribePattern="walk-.*", startingOffsets="earliest")
        stream.start()
        stream.catch_up()
        side.topics.create("walk-2", 2, **KEPT)
        stream.catch_up()
        side.topics.send("walk-2", numbered(5))
        stream.catch_up()
        side.topics.extend("walk-1", 3)
        stream.catch_up()
        side.topics.send("walk-1", [Sent(b"in a new partition", partition=2)])
        stream.catch_up()
        return stream.stop()

    ours, kafkas = both.play(play)
    assert sum(len(batch.rows) for batch in batches_of(kafkas)) == 11
    assert ours == kafkas
