"""Kafka's default partitioner, against the one of kafka-python."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from odradek.protocol.partitioning import partition_of_key


@given(st.binary(max_size=50), st.integers(1, 1000))
def test_a_key_goes_where_the_default_partitioner_puts_it(key: bytes, count: int) -> None:
    assert partition_of_key(key, count) == (murmur2(key) & 0x7FFFFFFF) % count
