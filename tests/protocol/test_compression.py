"""Compression: what is written, what is read, and what is refused within bounds."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.compression import (
    MEMBER_BYTES,
    Codec,
    CorruptCompression,
    DecompressedTooLarge,
    compress,
    compress_in_pieces,
    decompress,
    unpack,
)
from odradek.protocol.errors import ProtocolError
from odradek.protocol.zstd_frames import frame_extent
from tests.profiles import examples
from tests.protocol.batch_strategies import mutated
from tests.protocol.clients import CLIENT_CODECS, CLIENTS

BOUND = 1 << 20
COMPRESSORS = [codec for codec in Codec if codec != Codec.NONE]
every_codec = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
every_compressor = pytest.mark.parametrize("codec", COMPRESSORS, ids=lambda codec: codec.label)

# Plain, compressible, past one Xerial block and one lz4 block.
DATA = st.binary(max_size=300) | st.tuples(
    st.binary(min_size=1, max_size=50), st.integers(1, 4000)
).map(lambda pair: pair[0] * pair[1])
TEXT = b"".join(b'{"id": %d, "name": "a name"}' % (n * n) for n in range(6000))


def _lz4_header(content_size: int) -> bytes:
    context = lz4.frame.create_compression_context()
    header: bytes = lz4.frame.compress_begin(context, source_size=content_size, block_linked=False)
    return header


@every_codec
def test_decompressing_inverts_compressing(codec: Codec) -> None:
    @settings(deadline=None, max_examples=examples(40))
    @given(DATA)
    def check(data: bytes) -> None:
        assert decompress(codec, compress(codec, data), len(data)) == data

    check()


@every_codec
@pytest.mark.parametrize("kind", [bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_any_buffer_may_be_given(codec: Codec, kind: type) -> None:
    compressed = compress(codec, kind(TEXT))
    assert compressed == compress(codec, TEXT)
    padded = b"before" + compressed + b"after"
    inside = memoryview(kind(padded))[6:-5]
    assert decompress(codec, inside, len(TEXT)) == TEXT


@every_codec
def test_the_bound_is_exact(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, compressed, len(TEXT) - 1)


@every_compressor
def test_any_bytes_give_a_value_within_the_bound_or_a_protocol_error(codec: Codec) -> None:
    valid = compress(codec, TEXT[:3000])
    magic = valid[:20]

    @settings(deadline=None, max_examples=examples(150))
    @given(st.binary(max_size=60) | st.binary(max_size=60).map(magic.__add__) | mutated(valid))
    def check(data: bytes) -> None:
        with suppress(ProtocolError):
            assert len(decompress(codec, data, 5000)) <= 5000

    check()


@every_compressor
def test_a_stream_cut_off_anywhere_is_corrupt(codec: Codec) -> None:
    data = TEXT[: 80 * 1024]
    compressed = compress(codec, data)
    step = max(1, len(compressed) // 400)
    for end in [*range(0, len(compressed), step), len(compressed) - 1]:
        if codec == Codec.SNAPPY and end in _xerial_boundaries(compressed):
            # The framing does not tell how many blocks there are.
            assert data.startswith(decompress(codec, compressed[:end], BOUND))
            continue
        with pytest.raises(CorruptCompression):
            decompress(codec, compressed[:end], BOUND)


@every_compressor
def test_bytes_after_the_end_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptCompression):
        decompress(codec, compress(codec, TEXT) + b"\x01\x02\x03", BOUND)


@every_compressor
def test_a_bomb_is_refused_without_being_unpacked(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, bomb, BOUND)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * BOUND + len(bomb)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        # A single-segment frame that claims 2^40 bytes, with one empty block.
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + b"\x01\x00\x00"),
        # One that claims less than the bound, but far more than its block can hold.
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", BOUND) + b"\x01\x00\x00"),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f"),
        (Codec.SNAPPY, b"\x80\x80\x40"),
        (Codec.LZ4, _lz4_header(content_size=1 << 40) + bytes(4)),
    ],
)
def test_a_header_that_lies_about_the_size_costs_nothing(codec: Codec, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decompress(codec, data, BOUND)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < BOUND / 2


@every_compressor
def test_empty_input_is_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptCompression):
        decompress(codec, b"", BOUND)


def test_snappy_is_framed_as_xerial_does() -> None:
    compressed = compress(Codec.SNAPPY, TEXT)
    assert compressed[:16] == b"\x82SNAPPY\x00" + bytes([0, 0, 0, 1, 0, 0, 0, 1])
    boundaries = _xerial_boundaries(compressed)
    assert boundaries[-1] == len(compressed)
    blocks = [
        bytes(cramjam.snappy.decompress_raw(compressed[start + 4 : end]))
        for start, end in pairwise(boundaries)
    ]
    assert b"".join(blocks) == TEXT
    assert {len(block) for block in blocks[:-1]} == {32 * 1024}


def test_raw_snappy_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.SNAPPY, raw, len(TEXT) - 1)


def test_xerial_streams_may_follow_each_other() -> None:
    twice = compress(Codec.SNAPPY, TEXT) + compress(Codec.SNAPPY, b"more")
    assert decompress(Codec.SNAPPY, twice, BOUND) == TEXT + b"more"


@pytest.mark.parametrize(("version", "is_read"), [(b"\x01\0\0\0", True), (b"\0\0\0\0", False)])
def test_xerial_versions_are_compared_as_snappy_java_does(version: bytes, is_read: bool) -> None:
    compressed = compress(Codec.SNAPPY, b"data")
    changed = compressed[:8] + version + version + compressed[16:]
    if is_read:
        assert decompress(Codec.SNAPPY, changed, BOUND) == b"data"
    else:
        with pytest.raises(CorruptCompression):
            decompress(Codec.SNAPPY, changed, BOUND)


def test_gzip_members_may_follow_each_other() -> None:
    members = gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(TEXT)
    assert decompress(Codec.GZIP, members, BOUND) == b"one" + TEXT


def test_zlib_without_a_gzip_header_is_corrupt() -> None:
    with pytest.raises(CorruptCompression):
        decompress(Codec.GZIP, zlib.compress(TEXT), BOUND)


def test_lz4_frames_are_the_ones_that_java_reads() -> None:
    compressed = compress(Codec.LZ4, TEXT)
    # Version 1, independent blocks, no sizes nor checksums; blocks of 64 KiB.
    assert compressed[:6] == b"\x04\x22\x4d\x18\x60\x40"
    assert lz4.frame.decompress(compressed) == TEXT


@pytest.mark.parametrize(
    "options", [{"content_checksum": True}, {"block_checksum": True}, {"store_size": True}]
)
def test_optional_parts_of_lz4_frames_are_read(options: dict[str, bool]) -> None:
    frame = lz4.frame.compress(TEXT, **{"block_linked": False, "store_size": False, **options})
    assert decompress(Codec.LZ4, frame, len(TEXT)) == TEXT
    damaged = bytearray(frame)
    damaged[6] ^= 1
    with pytest.raises(CorruptCompression):
        decompress(Codec.LZ4, damaged, len(TEXT))


def test_lz4_with_dependent_blocks_is_corrupt_as_java_cannot_read_it() -> None:
    with pytest.raises(CorruptCompression, match="dependent"):
        decompress(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True), BOUND)


def test_a_second_lz4_frame_is_corrupt_as_java_would_not_read_it() -> None:
    with pytest.raises(CorruptCompression, match="after the frame"):
        decompress(Codec.LZ4, compress(Codec.LZ4, TEXT) * 2, BOUND)


MEMBERS_OF_NOTHING = {
    "gzip members": (Codec.GZIP, b"", gzip.compress(b"")),
    "xerial headers": (Codec.SNAPPY, b"", struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)),
    "xerial blocks": (
        Codec.SNAPPY,
        struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1),
        struct.pack(">i", 1) + b"\x00",
    ),
    "zstd frames": (Codec.ZSTD, b"", zstandard.ZstdCompressor().compress(b"")),
    "zstd user data": (Codec.ZSTD, b"", b"\x50\x2a\x4d\x18\x00\x00\x00\x00"),
    "zstd blocks": (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\x58", b"\x00\x00\x00"),
}


@pytest.mark.parametrize("kind", MEMBERS_OF_NOTHING)
def test_a_bound_on_the_size_bounds_the_members_too(kind: str) -> None:
    codec, head, member = MEMBERS_OF_NOTHING[kind]
    bound = 100 * MEMBER_BYTES
    with pytest.raises(DecompressedTooLarge, match="members"):
        decompress(codec, head + member * 1000, bound)


@pytest.mark.parametrize("kind", ["gzip members", "xerial blocks", "zstd frames"])
def test_members_of_any_size_are_read(kind: str) -> None:
    codec, head, nothing = MEMBERS_OF_NOTHING[kind]
    data = head + nothing + compress(codec, TEXT)[len(head) :] + nothing
    size, packed = len(TEXT), compress(codec, TEXT)
    assert unpack(codec, data, size)[0] == TEXT
    assert unpack(codec, data, size)[1] == unpack(codec, packed, size)[1] + 2 * _weight(codec)


def _weight(codec: Codec) -> int:
    """A zstd frame counts, and the block in it."""
    return 2 if codec is Codec.ZSTD else 1


@every_codec
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 64 * 1024, 64 * 1024 + 1, len(TEXT)])
def test_pieces_are_small_and_make_up_the_whole(codec: Codec, size: int) -> None:
    data = TEXT[:size]
    pieces = [bytes(piece) for piece in compress_in_pieces(codec, data)]
    assert decompress(codec, b"".join(pieces), size) == data
    if codec != Codec.NONE:
        assert len(pieces) > size // (64 * 1024)


def test_zstd_frames_of_every_shape_are_read() -> None:
    sized = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    unsized = stream.compress(TEXT) + stream.flush()
    skippable = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"
    empty = zstandard.ZstdCompressor().compress(b"")
    frames = sized + skippable + unsized + empty
    assert decompress(Codec.ZSTD, frames, 2 * len(TEXT)) == TEXT * 2
    for bound in (0, len(TEXT) - 1, len(TEXT), 2 * len(TEXT) - 1):
        with pytest.raises(DecompressedTooLarge):
            decompress(Codec.ZSTD, frames, bound)
    for end in (len(sized) - 1, len(sized) + 5, len(frames) - 1):
        with pytest.raises(CorruptCompression):
            decompress(Codec.ZSTD, frames[:end], 2 * len(TEXT))


def test_a_damaged_zstd_checksum_is_noticed() -> None:
    damaged = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    damaged[-1] ^= 1
    with pytest.raises(CorruptCompression):
        decompress(Codec.ZSTD, damaged, BOUND)


@pytest.mark.parametrize("bound", [1000, 100_000, BOUND])
def test_a_zstd_frame_of_unknown_size_is_bounded(bound: int) -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    frame = stream.compress(bytes(8 << 20)) + stream.flush()
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.ZSTD, frame, bound)


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 17), (Codec.ZSTD, -5, 19)]
)
def test_levels_trade_size(codec: Codec, low: int, high: int) -> None:
    small, large = compress(codec, TEXT, high), compress(codec, TEXT, low)
    assert len(small) <= len(large)
    assert decompress(codec, small, BOUND) == decompress(codec, large, BOUND) == TEXT


def test_lz4_level_nine_is_kafkas_fast_default() -> None:
    assert compress(Codec.LZ4, TEXT, 9) == compress(Codec.LZ4, TEXT)


def test_codecs_have_kafkas_ids_and_names() -> None:
    assert [(codec.value, codec.label) for codec in Codec] == list(
        enumerate(["none", "gzip", "snappy", "lz4", "zstd"])
    )


@pytest.mark.parametrize(
    ("client", "codec"), [pair for pair in CLIENT_CODECS if pair[1] != Codec.NONE], ids=str
)
def test_python_clients_read_ours_and_we_read_theirs(client: str, codec: Codec) -> None:
    functions = CLIENTS[client][0]
    encode = getattr(functions, f"{codec.label}_encode")
    decode = getattr(functions, f"{codec.label}_decode")
    assert decode(compress(codec, TEXT)) == TEXT
    assert decompress(codec, encode(TEXT), len(TEXT)) == TEXT


def test_threads_may_use_a_codec_at_once() -> None:
    texts = [TEXT[n : n + 50_000] for n in range(0, 80, 10)]

    def many(text: bytes) -> bool:
        compressed = [compress(codec, text) for codec in COMPRESSORS]
        return all(
            decompress(codec, data, len(text)) == text and compress(codec, text) == data
            for _ in range(10)
            for codec, data in zip(COMPRESSORS, compressed, strict=True)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(many, texts))


@every_compressor
def test_nothing_is_left_of_data_that_was_refused(codec: Codec) -> None:
    good = compress(codec, TEXT)
    sized = lz4.frame.compress(TEXT, block_linked=False, store_size=True)
    frame = sized if codec == Codec.LZ4 else good
    for end in (8, 20, len(frame) // 2, len(frame) - 1, len(frame)):
        with suppress(ProtocolError):
            decompress(codec, frame[:end], len(TEXT) - 1)
        assert decompress(codec, good, len(TEXT)) == TEXT


@settings(deadline=None, max_examples=examples(300))
@given(
    st.integers(0, 255), st.binary(min_size=13, max_size=13), st.sampled_from([0, 1, 300, 1 << 17])
)
def test_zstd_headers_are_read_as_the_library_does(
    descriptor: int, fields: bytes, size: int
) -> None:
    descriptor &= ~0b1000  # the library refuses what is reserved
    header = b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + fields
    header = header[: zstandard.frame_header_size(header)]
    try:
        claimed = zstandard.get_frame_parameters(header).content_size
    except zstandard.ZstdError:  # a window that is too large
        return
    raw_block = (size << 3 | 1).to_bytes(3, "little") + bytes(size)
    frame = header + raw_block + (bytes(4) if descriptor & 0b100 else b"")
    end, found, size_max, blocks = frame_extent(memoryview(frame + b"more"), 0)
    assert (end, size_max, blocks) == (len(frame), size, 1)
    assert (zstandard.CONTENTSIZE_UNKNOWN if found is None else found) == claimed


def test_importing_batches_loads_no_library() -> None:
    program = (
        "import sys, odradek.protocol.batches, odradek.protocol.records_plain\n"
        "print(*{'numba', 'numpy', 'lz4', 'zstandard', 'cramjam', 'crc32c'} & set(sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert loaded.stdout.split() == []


def _xerial_boundaries(compressed: bytes) -> list[int]:
    """Where each block starts, and the end."""
    boundaries = [16]
    while boundaries[-1] < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, boundaries[-1])
        boundaries.append(boundaries[-1] + 4 + size)
    return boundaries
