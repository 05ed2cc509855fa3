"""Converts a batch to the codec that its topic asks for.

The time that takes depends on the data: lz4 at level 17 took 137 s for 60 MiB that a producer had
packed into 175 kB. It ends as soon as the result is too large, or the time is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from odradek.config.topic import TopicConfig
from odradek.protocol import batches
from odradek.protocol.batches import HEADER_SIZE, BatchHeader
from odradek.protocol.compression import Codec, compress_in_pieces
from odradek.storage.allowance import Allowance
from odradek.storage.errors import BatchTooLarge
from odradek.storage.files import Buffer

# A limit near the time for which producers wait for an answer would be of no use to them.
SECONDS_MAX = 10.0
# The attributes that a batch keeps when its records are packed again.
_KEPT = batches.LOG_APPEND_TIME_BIT | batches.CONTROL_BIT | batches.TRANSACTIONAL_BIT
_CODECS = {codec.label: codec for codec in Codec} | {"uncompressed": Codec.NONE}


def recompress(
    header: BatchHeader,
    data: memoryview,
    section: Buffer,
    config: TopicConfig,
    name: str,
    allowance: Allowance | None,
    cpu_s: Callable[[], float] = time.thread_time,
) -> memoryview:
    """Return the batch with its records packed by the topic's codec; `data` if it is already.

    `section` has the unpacked records. Raises BatchTooLarge when the result exceeds
    max.message.bytes, or when packing takes over SECONDS_MAX of processor time; TooLaborious.
    """
    codec = _CODECS[config.compression_type]
    if header.codec == codec:
        return data
    if allowance is not None:
        allowance.spend_packing(codec, len(section))
    level = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)
    packed = bytearray()
    end_s = cpu_s() + SECONDS_MAX
    for piece in compress_in_pieces(codec, section, level):
        packed += piece
        check_size(HEADER_SIZE + len(packed), config, name)
        if cpu_s() > end_s:
            raise BatchTooLarge(
                f"{name}: packing {len(section)} bytes by {codec.label} at level {level} takes "
                f"over {SECONDS_MAX:.0f} s; send smaller batches, or set another "
                f"compression.{codec.label}.level"
            )
    if header.attributes & ~(_KEPT | batches.CODEC_MASK):
        header = replace(header, attributes=header.attributes & _KEPT)
    return memoryview(batches.replace_section(header, packed, codec))


def check_size(size: int, config: TopicConfig, name: str) -> None:
    """Raise BatchTooLarge for a batch of more bytes than the topic allows."""
    if size > config.max_message_bytes:
        raise BatchTooLarge(
            f"{name}: the batch of {size} bytes exceeds max.message.bytes="
            f"{config.max_message_bytes}"
        )
