"""Batches that a topic wants in another codec: within a bound of size and of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import pytest

from odradek.config.topic import TopicConfig
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import HEADER_SIZE, read_header
from odradek.protocol.compression import Codec, compress
from odradek.storage import recompression
from odradek.storage.allowance import Allowance, TooLaborious
from odradek.storage.errors import BatchTooLarge
from odradek.storage.recompression import SECONDS_MAX, recompress
from tests.broker.raw_batches import RawBatch, RawRecord

NOW = 1_700_000_000_000
SIZE = 1 << 20
PIECE_BYTES_MAX = 256 * 1024


def compressible(size: int = SIZE) -> RawBatch:
    return RawBatch(
        [RawRecord(value=b"a value" * (size // 7))], codec=Codec.ZSTD, base_timestamp=NOW
    )


def run(
    config: TopicConfig, seconds_a_piece: float = 0.0, allowance: Allowance | None = None
) -> bytes:
    raw = compressible()
    data = bytearray(raw.encode())
    section = raw.records[0].encode(0)  # type: ignore[union-attr]
    seconds = iter(range(10**6))
    return bytes(
        recompress(
            read_header(data),
            memoryview(data),
            section,
            config,
            "t-0",
            allowance,
            cpu_s=lambda: next(seconds) * seconds_a_piece,
        )
    )


TO_GZIP = TopicConfig(compression_type="gzip", max_message_bytes=SIZE)


def test_records_are_those_of_the_batch_that_came() -> None:
    made = run(TO_GZIP)
    assert read_header(made).codec is Codec.GZIP
    assert decode_records(made) == decode_records(compressible().encode())


def test_a_batch_that_takes_long_to_pack_is_refused() -> None:
    pieces = SIZE // PIECE_BYTES_MAX
    run(TO_GZIP, seconds_a_piece=SECONDS_MAX / (10 * pieces * 4))
    with pytest.raises(BatchTooLarge, match=r"compression\.gzip\.level"):
        run(TO_GZIP, seconds_a_piece=SECONDS_MAX / pieces)


def test_packing_ends_when_the_result_is_too_large() -> None:
    config = replace(TO_GZIP, compression_type="uncompressed", max_message_bytes=SIZE // 2)
    pieces: list[int] = []

    def counted(codec: Codec, data: bytes, level: int | None) -> Iterator[bytes]:
        for at in range(0, len(data), 1000):
            pieces.append(at)
            yield data[at : at + 1000]

    with (
        mock.patch.object(recompression, "compress_in_pieces", counted),
        pytest.raises(BatchTooLarge, match=r"max\.message\.bytes"),
    ):
        run(config)
    assert len(pieces) <= (SIZE // 2 - HEADER_SIZE) // 1000 + 1


def test_nothing_is_packed_that_is_too_laborious() -> None:
    with (
        mock.patch.object(recompression, "compress_in_pieces", side_effect=AssertionError),
        pytest.raises(TooLaborious),
    ):
        run(TO_GZIP, allowance=Allowance())


@pytest.mark.parametrize("level", [1, 9, 17])
def test_the_level_is_the_topics(level: int) -> None:
    config = TopicConfig(compression_type="lz4", compression_lz4_level=level)
    section = compressible().records[0].encode(0)  # type: ignore[union-attr]
    assert run(config)[HEADER_SIZE:] == compress(Codec.LZ4, section, level)
