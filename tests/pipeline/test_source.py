"""What is asked of Spark's Kafka source, and what is refused before Spark even starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from odradek.pipeline.errors import PipelineError, explain
from odradek.pipeline.source import (
    TopicSource,
    batch_options,
    parse_addresses,
    require_broker,
    stream_options,
)

BROKER = "127.0.0.1:9092"


def test_a_topic_is_subscribed_to_by_name_or_by_pattern() -> None:
    assert batch_options(TopicSource(BROKER, topic="prices"))["subscribe"] == "prices"
    by_pattern = stream_options(TopicSource(BROKER, subscribe_pattern="p.*"))
    assert by_pattern["subscribePattern"] == "p.*"
    assert "subscribe" not in by_pattern


@pytest.mark.parametrize(("topic", "pattern"), [(None, None), ("a", "b")])
def test_a_topic_and_a_pattern_exclude_each_other(topic: str | None, pattern: str | None) -> None:
    with pytest.raises(PipelineError, match="one of --topic and --subscribe-pattern"):
        stream_options(TopicSource(BROKER, topic=topic, subscribe_pattern=pattern))


def test_the_users_own_options_win() -> None:
    source = TopicSource(BROKER, topic="a", options={"failOnDataLoss": "false", "kafka.x": "y"})
    options = stream_options(source)
    assert options["failOnDataLoss"] == "false"
    assert options["kafka.x"] == "y"


def test_bounds_on_a_batch_reach_the_stream_only_if_given() -> None:
    assert "maxOffsetsPerTrigger" not in stream_options(TopicSource(BROKER, topic="a"))
    bounded = TopicSource(BROKER, topic="a", max_offsets_per_trigger=7)
    assert stream_options(bounded)["maxOffsetsPerTrigger"] == "7"
    with pytest.raises(PipelineError, match="at least 1"):
        stream_options(TopicSource(BROKER, topic="a", max_offsets_per_trigger=0))


@pytest.mark.parametrize("offsets", ["first", "{", "[]", '{"a": 1}', "7", ""])
def test_offsets_that_spark_cannot_read_are_refused_by_the_name_of_their_option(
    offsets: str,
) -> None:
    with pytest.raises(PipelineError, match="--starting-offsets"):
        stream_options(TopicSource(BROKER, topic="a", starting_offsets=offsets))
    with pytest.raises(PipelineError, match="--ending-offsets"):
        batch_options(TopicSource(BROKER, topic="a", ending_offsets=offsets))


def test_a_batch_cannot_start_at_the_end() -> None:
    with pytest.raises(PipelineError, match="--starting-offsets"):
        batch_options(TopicSource(BROKER, topic="a", starting_offsets="latest"))
    assert stream_options(TopicSource(BROKER, topic="a", starting_offsets="latest"))


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:1", [("a", 1)]),
        ("a:1, b.example:65535,", [("a", 1), ("b.example", 65535)]),
        ("[::1]:9092", [("::1", 9092)]),
    ],
)
def test_addresses_are_read_as_kafka_reads_them(
    servers: str, addresses: list[tuple[str, int]]
) -> None:
    assert parse_addresses(servers) == addresses


@pytest.mark.parametrize("servers", ["", ",", "a", "a:", ":1", "a:0", "a:65536", "a:²", "a:-1"])
def test_a_malformed_address_is_refused(servers: str) -> None:
    with pytest.raises(PipelineError, match="--bootstrap-servers"):
        parse_addresses(servers)


def test_one_address_that_accepts_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, _closed_port() as closed:
        require_broker(f"127.0.0.1:{closed},127.0.0.1:{listening.getsockname()[1]}")


def test_a_broker_that_nobody_runs_is_reported_with_its_address() -> None:
    with _closed_port() as port, pytest.raises(PipelineError, match=f"127.0.0.1:{port} .*refused"):
        require_broker(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("x.errors.UnknownTopicOrPartitionException: This server", "topic t does not exist"),
        ("x.errors.TopicAuthorizationException: Not authorized", "allow Describe and Read"),
        ("java.lang.IllegalStateException: Cannot fetch record for offset 7", "pollTimeoutMs"),
        ("Partition t-0's offset was changed from 10 to 0", "--no-fail-on-data-loss"),
        ("x.errors.TimeoutException: Call(callName=fetchMetadata)", "advertised.listeners"),
        ("java.io.IOException: No space left on device", "make room"),
        ("An error occurred while calling o1.load.\n: a.b.CException: why", "CException: why"),
        ("", "no reason given"),
        (
            "[FOREACH_BATCH_USER_FUNCTION_ERROR] Return Message: Traceback (most recent call last)"
            ':\n  File "x.py", line 1\n    raise\npy4j.x.CapturedException: [A] why',
            "[A] why",
        ),
    ],
)
def test_errors_of_spark_are_explained_in_one_line(said: str, message: str) -> None:
    line = explain(RuntimeError(said), where="the broker at b:1", what="topic t")
    assert message in line
    assert "\n" not in line


def test_the_cause_is_reported_rather_than_its_wrapper() -> None:
    try:
        try:
            raise RuntimeError("UnknownTopicOrPartitionException")
        except RuntimeError as cause:
            raise RuntimeError("TimeoutException") from cause
    except RuntimeError as error:
        assert "does not exist" in explain(error, where="b:1", what="topic t")


@contextmanager
def _closed_port() -> Iterator[int]:
    """A port that is bound, so that nobody else takes it, and refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
