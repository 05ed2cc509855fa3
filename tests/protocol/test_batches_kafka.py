"""Batches beside Apache Kafka's own code, which reads ours and builds its own for us."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    Record,
    batch_crc,
    check_crc,
    empty_batch,
    encode_batch,
    read_header,
)
from odradek.protocol.compression import Codec
from odradek.protocol.control import encode_end_txn_marker
from odradek.protocol.errors import ProtocolError
from tests.protocol.batch_strategies import CODECS, random_sections, record_lists
from tests.support.java import program

pytestmark = pytest.mark.kafka
properties = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Oracle:
    """A running Java program that answers a question a line; owns its process."""

    def __init__(self, name: str) -> None:
        self._process = subprocess.Popen(
            program(Path(__file__).with_name(name)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, *words: object) -> str:
        """Send one question; return its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer.endswith("\n"), "the oracle has ended"
        return answer[:-1]

    def close(self) -> None:
        """End the process by ending its input."""
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    running = Oracle("BatchOracle.java")
    yield running
    running.close()


@st.composite
def batches(draw: st.DrawFn, codecs: st.SearchStrategy[Codec] = CODECS) -> bytes:
    """A batch with any header that Kafka's builder could write."""
    base_offset = draw(st.integers(0, 2**40))
    records = draw(record_lists(base_offset=base_offset))
    idempotent = draw(st.booleans())
    return encode_batch(
        records,
        base_offset=base_offset,
        codec=draw(codecs),
        producer_id=draw(st.integers(0, 2**40)) if idempotent else -1,
        producer_epoch=draw(st.integers(0, 2**15 - 1)) if idempotent else -1,
        base_sequence=draw(st.integers(0, 2**31 - 1)) if idempotent else -1,
        transactional=idempotent and draw(st.booleans()),
        leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        log_append_time=draw(st.booleans()),
        delete_horizon_ms=draw(st.none() | st.integers(0, 2**45)),
        last_offset_delta=records[-1].offset - base_offset + draw(st.integers(0, 3)),
    )


@properties
@given(data=st.data())
def test_kafka_reads_our_batches(oracle: Oracle, data: st.DataObject) -> None:
    several = data.draw(st.lists(batches(), min_size=1, max_size=3))
    assert oracle.ask("read", b"".join(several).hex()) == "".join(map(in_words, several))


@properties
@given(data=st.data())
def test_kafka_builds_the_same_bytes(oracle: Oracle, data: st.DataObject) -> None:
    batch = data.draw(batches(st.just(Codec.NONE)))
    if read_header(batch).is_log_append_time:
        # Kafka's builder takes the base timestamp from the first record as it is read.
        batch = encode_again(batch)
    assert oracle.ask("rebuild", "none", batch.hex()) == batch.hex()


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_batches_that_kafka_builds_are_read(oracle: Oracle, codec: Codec) -> None:
    @settings(properties, max_examples=20)
    @given(batches())
    def check(batch: bytes) -> None:
        built = bytes.fromhex(oracle.ask("rebuild", codec.label, batch.hex()))
        header = read_header(built)
        check_crc(built, 0, len(built))
        assert header.codec == codec
        assert header.last_offset == read_header(batch).last_offset
        assert decode_records(built) == decode_records(batch)

    check()


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_large_batches_pass_both_ways(oracle: Oracle, codec: Codec) -> None:
    records = [Record(n, n, b"key %d" % n, b"value %d " % (n * n) * 12) for n in range(3000)]
    batch = encode_batch(records, codec=codec)
    assert oracle.ask("read", batch.hex()) == in_words(batch)
    built = bytes.fromhex(oracle.ask("rebuild", codec.label, batch.hex()))
    assert decode_records(built) == records


@properties
@given(data=st.data())
def test_empty_batches_are_kafkas(oracle: Oracle, data: st.DataObject) -> None:
    batch = data.draw(batches())
    emptied = empty_batch(read_header(batch))
    assert oracle.ask("empty", batch.hex()) == emptied.hex()
    assert oracle.ask("read", emptied.hex()) == in_words(emptied)


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_markers_are_kafkas(oracle: Oracle, commit: bool) -> None:
    marker = encode_end_txn_marker(
        commit=commit,
        timestamp=1_700_000_000_000,
        producer_id=2**40,
        producer_epoch=77,
        coordinator_epoch=5,
        base_offset=2**33,
        leader_epoch=9,
    )
    theirs = oracle.ask("marker", str(commit).lower(), 2**33, 1_700_000_000_000, 9, 2**40, 77, 5)
    assert theirs == marker.hex()


def test_kafka_refuses_the_records_that_we_refuse(oracle: Oracle) -> None:
    refused = 0
    for section, count in random_sections(seed=2, rounds=1500):
        batch = around_section(section, count)
        answer = oracle.ask("read", batch.hex())
        try:
            decode_records(batch)
        except ProtocolError:
            refused += 1
            # Kafka does not look at what follows when the count is 0.
            assert answer.startswith("refused") or count == 0
        else:
            assert answer == in_words(batch)
    assert 300 < refused < 1200


def around_section(section: bytes, count: int) -> bytes:
    """A batch of any section and count, with the right size and CRC."""
    batch = bytearray(encode_batch([Record(0, 0, None, None)])[:HEADER_SIZE] + section)
    struct.pack_into(">i", batch, 8, len(batch) - LOG_OVERHEAD)
    struct.pack_into(">i", batch, 23, 100)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, batch_crc(batch, 0, len(batch)))
    return bytes(batch)


def encode_again(batch: bytes) -> bytes:
    """Encode a batch's records as they are read, under the same header."""
    header = read_header(batch)
    return encode_batch(
        decode_records(batch),
        base_offset=header.base_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        leader_epoch=header.leader_epoch,
        log_append_time=header.is_log_append_time,
        delete_horizon_ms=header.base_timestamp if header.has_delete_horizon else None,
        last_offset_delta=header.last_offset_delta,
    )


def in_words(batch: bytes) -> str:
    """Say of a batch what the oracle says."""
    header = read_header(batch)
    words = [
        "batch",
        header.base_offset,
        header.last_offset,
        header.size_bytes,
        header.leader_epoch,
        header.crc,
        header.codec.label,
        *(
            str(flag).lower()
            for flag in (header.is_log_append_time, header.is_transactional, header.is_control)
        ),
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.count,
        header.base_timestamp if header.has_delete_horizon else "-",
    ]
    text = " ".join(map(str, words)) + ";"
    for record in decode_records(batch):
        key, value = octets(record.key), octets(record.value)
        text += f"record {record.offset} {record.timestamp} {key} {value}"
        for name, header_value in record.headers:
            # Java replaces what is no UTF-8, as decoding with "replace" does.
            name_octets = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            text += f" {octets(name_octets.encode())}={octets(header_value)}"
        text += ";"
    return text


def octets(value: bytes | None) -> str:
    """Write bytes as the oracle does."""
    return "-" if value is None else f"x{value.hex()}"
