"""Messages of magic 0 and 1 beside Apache Kafka's own code, which reads ours and writes some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol.batches import Record
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ProtocolError
from odradek.protocol.legacy import decode_entry, read_entry, stored_crc
from tests.protocol.kafka_jars import require_jars
from tests.protocol.legacy_messages import encode_entry, encode_wrapper
from tests.protocol.test_batches_kafka import Oracle
from tests.protocol.test_legacy import message_sets, rewrapped

pytestmark = pytest.mark.kafka
properties = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
CODECS = list(Codec)[:4]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    require_jars()
    running = Oracle("LegacyOracle.java")
    yield running
    running.close()


def octets(data: bytes | None) -> str:
    return "-" if data is None else "x" + data.hex()


def in_words(data: bytes) -> str:
    """Put entries into the words in which the oracle answers."""
    words = []
    position = 0
    while position < len(data):
        header = read_entry(data, position)
        words.append(
            f"entry {header.last_offset} {header.size_bytes} {header.magic} {header.crc} "
            f"{header.codec.label} {str(header.is_log_append_time).lower()} "
            f"{header.max_timestamp};"
        )
        words += [
            f"record {r.offset} {r.timestamp} {octets(r.key)} {octets(r.value)};"
            for r in decode_entry(data, position)
        ]
        position += header.size_bytes
    return "".join(words)


def build(
    oracle: Oracle, magic: int, codec: Codec, records: Sequence[Record], append_time: int | None
) -> bytes:
    """Let Kafka write records."""
    words = [
        word
        for r in records
        for word in (r.offset, r.timestamp, octets(r.key), octets(r.value))
    ]
    stamp = "-" if append_time is None else append_time
    return bytes.fromhex(oracle.ask("build", magic, codec.label, stamp, *words))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_messages_that_kafka_writes_are_read(oracle: Oracle, magic: int, codec: Codec) -> None:
    @settings(properties, max_examples=25)
    @given(message_sets(magic), st.none() | st.integers(0, 2**45))
    def check(records: list[Record], append_time: int | None) -> None:
        written = build(oracle, magic, codec, records, append_time)
        found: list[Record] = []
        position = 0
        while position < len(written):
            header = read_entry(written, position)
            entry = written[position : position + header.size_bytes]
            assert stored_crc(header, entry) == header.crc
            assert header.is_log_append_time == (magic == 1 and append_time is not None)
            found += decode_entry(entry)
            position += len(entry)
        if magic == 1 and append_time is not None:
            records = [replace(record, timestamp=append_time) for record in records]
        assert found == records
        assert oracle.ask("read", written.hex()) == in_words(written)

    check()


@pytest.mark.parametrize("magic", [0, 1])
@properties
@given(data=st.data())
def test_kafka_reads_what_the_tests_write(
    oracle: Oracle, magic: int, data: st.DataObject
) -> None:
    codec = data.draw(st.sampled_from(CODECS))
    records = data.draw(message_sets(magic))
    if codec == Codec.NONE:
        written = b"".join(encode_entry(magic, record) for record in records)
        assert written == build(oracle, magic, codec, records, None)
    else:
        written = encode_wrapper(magic, codec, records)
    assert oracle.ask("read", written.hex()) == in_words(written)


@properties
@given(data=st.data(), magic=st.integers(0, 1))
def test_kafka_reads_what_a_wrapper_of_any_messages_is_read_as(
    oracle: Oracle, data: st.DataObject, magic: int
) -> None:
    """Also messages of the other magic, and offsets that no producer would give."""
    messages = message_sets(1).map(lambda some: some[0])
    records = data.draw(st.lists(messages, min_size=1, max_size=4))
    offset = data.draw(st.sampled_from([0, 2**40, 2**55]))
    inner = b"".join(encode_entry(data.draw(st.integers(0, 1)), record) for record in records)
    written = rewrapped(magic, Codec.GZIP, offset, inner)
    answer = oracle.ask("read", written.hex())
    try:
        words = in_words(written)
    except ProtocolError:
        assert answer.startswith("refused ")
    else:
        assert answer == words
