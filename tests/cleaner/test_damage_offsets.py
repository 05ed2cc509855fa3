"""Damage that a cleaning meets is named by the first offset that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.protocol.batches import batch_crc
from odradek.protocol.compression import Codec
from odradek.storage.errors import CorruptFile
from odradek.storage.segment import LOG
from tests.cleaner.worlds import FS, World, pairs

DAMAGED = 3


def flip_a_bit(batch: bytearray) -> None:
    batch[-1] ^= 1


def lie_of_its_count(batch: bytearray) -> None:
    batch[57:61] = (7).to_bytes(4, "big")
    _sign(batch)


def spoil_what_is_compressed(batch: bytearray) -> None:
    batch[65:75] = bytes(10)
    _sign(batch)


def lie_of_its_size(batch: bytearray) -> None:
    batch[8:12] = (1 << 20).to_bytes(4, "big")


def _sign(batch: bytearray) -> None:
    batch[17:21] = batch_crc(batch, 0, len(batch)).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("spoil", "codec"),
    [
        (flip_a_bit, Codec.NONE),
        (flip_a_bit, Codec.ZSTD),
        (lie_of_its_count, Codec.NONE),
        (lie_of_its_count, Codec.GZIP),
        (spoil_what_is_compressed, Codec.GZIP),
        (spoil_what_is_compressed, Codec.ZSTD),
        (lie_of_its_size, Codec.NONE),
    ],
)
@pytest.mark.parametrize("is_dirty", [True, False])
def test_the_offset_of_damage_is_that_of_its_first_record(
    tmp_path: Path, spoil: Callable[[bytearray], None], codec: Codec, is_dirty: bool
) -> None:
    world = World(tmp_path)
    world.append(pairs("a:1 b:1 c:1"))
    world.append(pairs("a:2 b:2"), codec=codec)
    world.append(pairs("c:2"))
    world.roll()
    world.append(pairs("d:1"))
    world.roll()
    if not is_dirty:
        world.directory.cleaner_offsets["prices", 0] = 6
    segment = world.log.segments[0]
    places = {header.base_offset: (at, bytes(data)) for at, header, data in segment.batches()}
    position, data = places[DAMAGED]
    batch = bytearray(data)
    spoil(batch)
    FS.open(segment.path(LOG), write=True).append(position, [batch])
    with pytest.raises(CorruptFile) as caught:
        world.clean()
    error = caught.value
    assert (error.path, error.position, error.offset) == (segment.path(LOG), position, DAMAGED)
