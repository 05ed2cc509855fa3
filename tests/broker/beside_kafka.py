"""Odradek and Apache Kafka with the same settings, once for all files that can share them.

A test that takes the fixture `beside_kafka` has topics, groups and producers of its own, or
deletes its topics at the end. The settings of all these tests go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.processes import KafkaProcess, OdradekProcess, kafka_libs

SETTINGS: Mapping[str, str] = {
    # A clean stop, a creation of topics, and a search for a coordinator take less.
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    # Some records are of 1970: each broker would delete them when it looks next.
    "log.retention.ms": "-1",
    "log.retention.hours": "3",  # the setting above stands in for it
    "auto.create.topics.enable": "false",
    # On a busy machine Kafka's controller takes the broker for dead, and all epochs change.
    "broker.session.timeout.ms": "600000",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.size": "7",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.max.size": "5",
    "group.streams.num.standby.replicas": "1",
}


class BesideKafka(NamedTuple):
    """Odradek and Kafka, and the folder of their stores for TLS (dynamic_configs.Files)."""

    ours: OdradekProcess
    theirs: KafkaProcess
    directory: Path


@contextmanager
def running_beside_kafka(directory: Path) -> Iterator[BesideKafka]:
    """Run both; skip the test where Kafka cannot be had."""
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    # It makes certificates when it is imported.
    from tests.broker.dynamic_configs import starts

    ours, theirs = starts(directory, SETTINGS)
    try:
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda one: one.start(), (ours, theirs)))
        yield BesideKafka(ours, theirs, directory)
    finally:
        if theirs.process is not None:
            theirs.kill()  # a clean stop of Kafka's takes seconds when it has many topics
        ours.stop()
