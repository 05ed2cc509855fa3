"""Requests can be written at each version, and are read again as they were."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.compiler import decode, encode
from odradek.protocol.schema import info_of
from tests.support.requests import (
    committing,
    creatable,
    creating,
    describing,
    fetching,
    listing_offsets,
    producing,
)

REQUESTS = [
    committing("a-group", {"orders": {0: 7, 2: 9}}),
    creating(creatable("orders", 3, configs={"retention.ms": "1"}), "prices", validate_only=True),
    describing("orders", "prices"),
    fetching("orders", 7, partition=1, wait_ms=5, isolation=1),
    listing_offsets({"orders": [0, 1], "prices": [2]}),
    producing("orders", {0: b"one", 1: b"other"}, acks=1),
]


@pytest.mark.parametrize("made", REQUESTS, ids=lambda one: type(one).__name__)
def test_requests_are_written_at_each_version(made: Any) -> None:
    versions = info_of(type(made)).versions
    for version in range(versions.first, versions.last + 1):
        octets = encode(made, version)
        assert encode(decode(type(made), version, octets), version) == octets


def test_a_name_alone_is_that_of_a_topic_with_one_partition() -> None:
    assert creating("orders") == creating(creatable("orders", 1))


def test_a_topic_is_named_or_has_an_id() -> None:
    by_name, by_id = (committing("a-group", {one: {0: 7}}) for one in ("orders", b"i" * 16))
    assert [(one.topics[0].name, one.topics[0].topic_id) for one in (by_name, by_id)] == [
        ("orders", bytes(16)),
        ("", b"i" * 16),
    ]
