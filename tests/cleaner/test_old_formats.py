"""Cleaning logs that older Kafkas began: what is kept of magic 0 and 1 becomes magic 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batches import MAGIC, Record
from odradek.protocol.compression import Codec
from odradek.storage.errors import CorruptFile
from odradek.storage.segment import LOG
from tests.cleaner.once import SETTINGS
from tests.cleaner.test_clean_model import new_world
from tests.cleaner.worlds import EAGER, FS, TOPIC, StoredBatch, World
from tests.storage.old_logs import FORMATS, Written, all_records, random_log, write

pytestmark = pytest.mark.slow


def fill(world: World, written: Sequence[Written], roll_after: int = 0) -> None:
    """Put batches and entries into a log as they are, in one segment, or in two."""
    log = world.log
    for count, one in enumerate(written, start=1):
        largest = max(record.timestamp for record in one.records)
        log.active.append((one.data,), len(one.data), one.last_offset, largest, 200)
        log.log_end_offset = one.last_offset + 1
        if count in (roll_after, len(written)):
            world.roll()


def as_new(written: Sequence[Written]) -> list[Written]:
    """Write the same records in the same batches, all of magic 2."""
    return [
        one if one.magic == MAGIC else write(MAGIC, one.codec, one.records) for one in written
    ]


def layout(batches: Sequence[StoredBatch]) -> list[tuple[Codec, int, int, list[Record]]]:
    """Tell codec, offsets and records, whichever uncompressed records share a batch."""
    found: list[tuple[Codec, int, int, list[Record]]] = []
    for batch in batches:
        header, records = batch.header, list(batch.records)
        if header.codec == Codec.NONE:
            found += [(header.codec, r.offset, r.offset, [r]) for r in records]
        else:
            found.append((header.codec, header.base_offset, header.last_offset, records))
    return found


@given(
    seed=st.integers(0, 1 << 30),
    magics=st.sampled_from([(0,), (1,), (0, 1), (0, 1, 2)]),
    chunk_bytes=st.sampled_from([70, 400, 1 << 20]),
    roll_after=st.integers(0, 15),
)
def test_old_messages_are_cleaned_as_batches_of_the_same_records_are(
    seed: int, magics: list[int], chunk_bytes: int, roll_after: int
) -> None:
    written = random_log(seed, 15, magics)
    results = []
    for log in (written, as_new(written)):
        with new_world() as world:
            fill(world, log, roll_after)
            world.clean(replace(SETTINGS, chunk_bytes=chunk_bytes))
            for batch in world.batches():
                has_tombstone = any(record.value is None for record in batch.records)
                assert batch.header.has_delete_horizon == has_tombstone
                assert batch.header.magic == MAGIC
            results.append(layout(world.batches()))
    assert results[0] == results[1]


def test_the_latest_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    written = random_log(7, 60, (0, 1))
    world = World(tmp_path)
    fill(world, written)
    world.clean()
    latest = {record.key: record for record in all_records(written)}
    assert world.records() == sorted(latest.values(), key=lambda record: record.offset)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", FORMATS[1], ids=lambda codec: codec.label)
def test_codec_and_append_time_stay(magic: int, codec: Codec, tmp_path: Path) -> None:
    world = World(tmp_path)
    appended = 77 if magic else None
    fill(world, [write(magic, codec, [Record(3, 5, b"k", b"v" * 100)], append_time=appended)])
    world.clean()
    header = world.batches()[0].header
    assert (header.codec, header.is_log_append_time) == (codec, magic == 1)
    assert (header.leader_epoch, header.producer_id) == (-1, -1)
    assert world.records() == [Record(3, 77 if magic else -1, b"k", b"v" * 100)]


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_tombstone_gets_a_delete_horizon_and_goes_after_it(
    magic: int, tmp_path: Path
) -> None:
    world = World(tmp_path)
    fill(
        world,
        [
            write(magic, Codec.NONE, [Record(0, 5, b"k", b"v")]),
            write(magic, Codec.NONE, [Record(1, 6, b"k", None)]),
        ],
    )
    world.clean()
    assert world.values() == ["k:-"]
    assert world.batches()[0].header.base_timestamp == world.now_ms + EAGER.delete_retention_ms
    world.now_ms += EAGER.delete_retention_ms
    world.append([(b"other", b"v")])
    world.roll()
    world.clean()
    assert world.values() == ["other:v"]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=lambda codec: codec.label)
def test_an_old_tombstone_goes_when_its_segment_is_so_much_older_than_the_last_clean_one(
    magic: int, codec: Codec, tmp_path: Path
) -> None:
    """What Kafka 4.3.1 does in the cleaning that would otherwise convert it."""
    world = World(tmp_path)
    retention_ms = EAGER.delete_retention_ms
    ages_ms = [retention_ms + 1, retention_ms, retention_ms - 1, 0, 2 * retention_ms]
    for at in range(len(ages_ms)):
        record = Record(world.log.log_end_offset, 5, b"k%d" % at, None)
        fill(world, [write(magic, codec, [record])])
    world.append([(b"new", b"v")])
    world.roll()
    for segment, age_ms in zip(world.log.segments, ages_ms, strict=False):
        FS.set_modified_ms(segment.path(LOG), world.now_ms - age_ms)
    # The fourth segment, of age 0, is the last one that begins before this.
    world.directory.cleaner_offsets[TOPIC, 0] = 4
    world.clean()
    assert world.values() == ["k2:-", "k3:-", "new:v"]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_log_of_small_messages_does_not_grow(magic: int, tmp_path: Path) -> None:
    world = World(tmp_path)
    written = [
        write(magic, Codec.NONE, [Record(at, 5, b"%d" % at, b"")]) for at in range(5_000)
    ]
    fill(world, written)
    world.clean()
    assert world.records() == all_records(written)
    assert world.log.segments[0].size_bytes < sum(len(one.data) for one in written)
    assert len(world.batches()) > 5  # a reader of one need not take all


def test_a_range_may_end_with_an_old_message_that_goes(tmp_path: Path) -> None:
    """Kafka 4.3.1 gives such a log up: it would write an empty batch of the old format."""
    world = World(tmp_path)
    fill(
        world,
        [
            write(1, Codec.NONE, [Record(0, 5, b"k", b"v")]),
            write(1, Codec.NONE, [Record(1, 6, None, b"no key")]),
        ],
    )
    world.clean()
    assert world.values() == ["k:v"]
    assert world.batches()[-1].header.last_offset == 1


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", FORMATS[1], ids=lambda codec: codec.label)
def test_damage_is_named_by_its_position(magic: int, codec: Codec, tmp_path: Path) -> None:
    whole = random_log(1, 5, (0, 1, 2))
    hit = write(magic, codec, [Record(whole[-1].last_offset + 1, 5, b"key", b"value" * 9)])
    damaged = hit.data[:-1] + bytes((hit.data[-1] ^ 1,))
    after = random_log(2, 5, (0, 1, 2), hit.last_offset + 1)
    world = World(tmp_path)
    fill(world, [*whole, replace(hit, data=damaged), *after])
    log_file = world.log.segments[0].path(LOG)
    before = log_file.read_bytes()
    position = sum(len(one.data) for one in whole)
    with pytest.raises(CorruptFile, match=f"{log_file.name} is damaged at position {position}:"):
        world.clean()
    assert log_file.read_bytes() == before


def test_a_wrapper_that_grows_past_the_bound_is_refused(tmp_path: Path) -> None:
    config = replace(EAGER, max_decompressed_message_bytes=1000)
    world = World(tmp_path, config)
    fill(world, [write(1, Codec.GZIP, [Record(0, 5, b"k", bytes(2000))])])
    with pytest.raises(CorruptFile, match="exceeds 1000 bytes"):
        world.clean()
