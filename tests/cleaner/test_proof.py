"""The proof of a cleaning: it accepts what the cleaner makes, and nothing else."""

from __future__ import annotations

import struct
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.cleaner.errors import VerificationFailed
from odradek.cleaner.passes.clean import clean
from odradek.cleaner.proof.proof import Proof
from odradek.cleaner.rules.job import CleanerSettings, CleaningJob, make_job
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.progress import find_candidate
from odradek.protocol.batch_records import decode_records, record_section
from odradek.protocol.batches import (
    HEADER,
    BatchHeader,
    Record,
    batch_crc,
    encode_batch,
    iterate_batches,
    read_header,
)
from odradek.protocol.compression import Codec
from odradek.storage.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.storage.reading import aborted_between
from odradek.storage.segment import (
    CLEANED,
    INDEX,
    LOG,
    TIME_INDEX,
    TXN_INDEX,
    Segment,
    create_segment,
)
from odradek.storage.transactions import AbortedTransaction, pack_aborted, parse_aborted
from tests.cleaner.histories import HISTORIES, Author, Clean, Roll, Step
from tests.cleaner.once import SETTINGS, clean_once
from tests.cleaner.worlds import EAGER, FS, World, pairs

VERIFIED = replace(SETTINGS, must_verify=True)
# Every batch but the first of a segment gets an index entry.
DENSE = replace(EAGER, index_interval_bytes=0)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The output of a cleaning that was not swapped, and what proves it."""

    job: CleaningJob
    old: Sequence[Segment]
    new: Segment

    def prove(self, new: Sequence[Segment] | None = None) -> None:
        """Prove what is in the output's files now, or other segments in its place."""
        again = Segment(FS, self.new.directory, self.new.base_offset, suffix=CLEANED)
        proof = Proof(
            self.job,
            fs=FS,
            aborted=lambda start, end: aborted_between(self.job.segments, start, end),
            end_offset=self.job.dirty.first_uncleanable_offset,
            before_io=lambda size: None,
        )
        proof.check(self.old, [again] if new is None else new)

    def batches(self) -> list[bytes]:
        """Return the output's batches."""
        data = self.new.path(LOG).read_bytes()
        return [data[at : at + h.size_bytes] for at, h in iterate_batches(data)]

    def write(self, batches: Sequence[bytes]) -> None:
        """Put batches into the output's log file."""
        self.new.path(LOG).write_bytes(b"".join(batches))


def job_of(world: World) -> CleaningJob:
    """Return the job of cleaning all that a log has."""
    world.roll()
    candidate = find_candidate(world.log, world.directory, world.now_ms)
    assert candidate is not None
    return make_job(world.log, candidate.dirty, SETTINGS, world.now_ms, Reason.DIRTY)


def cleaned(world: World) -> Cleaned:
    """Clean a world's log, all in one group, without the swap."""
    job = job_of(world)
    made: list[Cleaned] = []
    clean(
        job,
        fs=FS,
        random_below=lambda bound: bound // 3,
        clock_ms=lambda: world.now_ms,
        before_io=lambda size: None,
        propose=lambda old, new: made.append(Cleaned(job, old, new[0])),
    )
    (one,) = made
    return one


def batches(segment: Segment) -> list[bytes]:
    """Return a segment's batches."""
    data = segment.path(LOG).read_bytes()
    return [data[at : at + h.size_bytes] for at, h in iterate_batches(data)]


def section_of(batch: bytes) -> bytes:
    """Return the records of a batch, unpacked."""
    return bytes(record_section(batch, 0, read_header(batch), 1 << 30))


def rich(path: Path) -> Cleaned:
    """The output of a cleaning in which there is something of everything.

    0-3  of which 1 and 3 are left; 4-5 untouched; 6 a tombstone; 7-8 a committed transaction, 9
    its marker; 10-11 an aborted one, of which the last is an empty header, 12 its marker; 13.
    """
    world = World(path, DENSE)
    world.append(pairs("a:1 b:1 c:1 d:1"), codec=Codec.GZIP, producer=(1, 2, 5))
    world.append(pairs("e:1 f:1"))
    world.append(pairs("g:-"))
    world.append(pairs("h:1 i:1"), producer=(3, 0, 0), transactional=True)
    world.append_marker(3, 0, commit=True)
    world.append(pairs("a:9"), producer=(4, 0, 0), transactional=True)
    world.append(pairs("b:9"), producer=(4, 0, 1), transactional=True)
    marker = world.append_marker(4, 0, commit=False)
    last = marker.header.base_offset
    world.note_aborted(AbortedTransaction(10, last, 4, last + 1))
    world.append(pairs("a:2 c:2 z:0"), log_append_time=True)
    return cleaned(world)


def sealed(batch: bytes | bytearray) -> bytes:
    """Return a batch with the CRC and the length that it must have."""
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, batch_crc(out, 0, len(out)))
    return bytes(out)


def with_header(batch: bytes, **changes: int) -> bytes:
    header = replace(read_header(batch), **changes)
    fields = [getattr(header, name) for name in BatchHeader.__slots__]
    return sealed(HEADER.pack(*fields) + batch[HEADER.size :])


def with_records(batch: bytes, records: Sequence[Record], **changes: int) -> bytes:
    """Return a batch with other records and else the same header."""
    header = read_header(batch)
    made = encode_batch(
        records,
        base_offset=header.base_offset,
        codec=header.codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time=header.is_log_append_time,
        delete_horizon_ms=header.base_timestamp if header.has_delete_horizon else None,
        last_offset_delta=header.last_offset_delta,
    )
    return with_header(made, leader_epoch=header.leader_epoch, **changes)


# --- what is right is accepted ----------------------------------------------------------------


def test_the_result_of_the_cleaner_is_proved(tmp_path: Path) -> None:
    rich(tmp_path).prove()


@pytest.mark.slow
@pytest.mark.parametrize("first_dirty", ["all is dirty", "only the last record is"])
def test_a_batch_of_many_tiny_records_takes_no_more_than_its_bytes(
    tmp_path: Path, first_dirty: str
) -> None:
    count = 100_000
    world = World(tmp_path, EAGER)
    # Whatever is dirty is kept in memory by its key, so that all that is dirty has one key.
    is_all = first_dirty == "all is dirty"
    name = "k:1" if is_all else "{at}:1"
    world.append(
        pairs(" ".join(name.format(at=at) for at in range(count))), codec=Codec.ZSTD
    )
    world.append(pairs("k:2" if is_all else "0:2"))
    made = cleaned(world)
    if not is_all:
        dirty = replace(made.job.dirty, first_dirty_offset=count)
        made = replace(made, job=replace(made.job, dirty=dirty))
    made.prove()  # imports what it needs
    tracemalloc.start()
    try:
        made.prove()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    section = max(len(section_of(batch)) for segment in made.old for batch in batches(segment))
    assert section > 9 * count
    # The bytes as they come from the codec, and as they are looked at; of two batches at once.
    assert peak_bytes < 5 * section + (1 << 20)


def test_a_run_says_that_it_was_proved(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(pairs("a:1 a:2"))
    world.roll()
    result = world.clean(VERIFIED)
    assert result is not None and result.is_verified
    assert world.values() == ["a:2"]
    world.append(pairs("a:3"))
    world.roll()
    result = world.clean()
    assert result is not None and not result.is_verified


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    HISTORIES,
    st.sampled_from([1, 600, 1 << 20]),
    st.sampled_from([64 << 20, 1]),
    st.sampled_from([64 << 20, 0]),
)
def test_every_cleaning_of_a_history_is_proved(
    steps: list[Step], segment_bytes: int, map_bytes: int, spill_bytes: int
) -> None:
    how = replace(VERIFIED, map_bytes_max=map_bytes, spill_bytes_max=spill_bytes)
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        world = World(Path(path), replace(EAGER, internal_segment_bytes=segment_bytes))
        author = Author(world)
        for step in [*steps, Roll(), Clean(0)]:
            if not isinstance(step, Clean):
                author.write(step)
                continue
            author.end_all()
            world.now_ms += step.after_ms
            world.clean(how)


def test_a_map_that_is_full_within_a_batch_is_no_fault(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(pairs("k:old"))
    world.append(pairs(" ".join(f"a{at}:1" for at in range(40))))
    world.append(pairs("k:new " + " ".join(f"b{at}:1" for at in range(60))))
    world.roll()
    result = world.clean(replace(VERIFIED, map_bytes_max=1, spill_bytes_max=0))
    assert result is not None and result.is_partial


def prove_kept(job: CleaningJob) -> None:
    """Prove that a job's segments may stay as they are."""
    proof = Proof(
        job,
        fs=FS,
        aborted=lambda start, end: [],
        end_offset=job.dirty.first_uncleanable_offset,
        before_io=lambda size: None,
    )
    for segment in job.segments:
        proof.check([segment], [segment])


def test_a_segment_in_which_nothing_is_obsolete_may_stay(tmp_path: Path) -> None:
    world = World(tmp_path)
    for word in ("a:1", "b:1", "c:1"):
        world.append(pairs(word))
        world.roll()
    prove_kept(job_of(world))


def test_a_segment_must_not_stay_when_something_in_it_is_obsolete(tmp_path: Path) -> None:
    for number, words in enumerate(("a:1 a:2", "a:1 b:-")):  # the second needs a delete horizon
        world = World(tmp_path / str(number))
        world.append(pairs(words))
        job = job_of(world)
        with pytest.raises(VerificationFailed) as caught:
            prove_kept(job)
        assert caught.value.path == job.segments[0].path(LOG)
        assert caught.value.offset in (0, 1)


def split(one: Cleaned, path: Path, sizes: Sequence[int]) -> list[Segment]:
    """Write an output again, as segments of so many batches each."""
    path.mkdir()
    left, made = one.batches(), []
    for size in sizes:
        first = read_header(left[0])
        segment = create_segment(FS, path, 0 if not made else first.base_offset)
        for batch in left[:size]:
            header = read_header(batch)
            place = header.last_offset, header.max_timestamp
            segment.append((batch,), len(batch), *place, DENSE.index_interval_bytes)
            if header.is_control and header.producer_id == 4:
                segment.transactions.append(AbortedTransaction(10, 12, 4, 13))
        segment.seal()
        left = left[size:]
        made.append(segment)
    assert not left
    return made


def test_a_group_may_become_several_segments(tmp_path: Path) -> None:
    one = rich(tmp_path)
    one.prove(split(one, tmp_path / "split", [3, 1, len(one.batches()) - 4]))


def test_segments_of_a_group_come_in_order(tmp_path: Path) -> None:
    one = rich(tmp_path)
    first, second = split(one, tmp_path / "split", [3, len(one.batches()) - 3])
    for wrong in ([second, first], [first], [second], [first, first, second], []):
        with pytest.raises(VerificationFailed):
            one.prove(wrong)


# --- what is not right is refused -------------------------------------------------------------

Mutation = Callable[[list[bytes]], list[bytes]]


def at_batch(index: int, change: Callable[[bytes], bytes]) -> Mutation:
    def mutate(batches: list[bytes]) -> list[bytes]:
        batches[index] = change(batches[index])
        return batches

    return mutate


def change_records(index: int, change: Callable[[list[Record]], list[Record]]) -> Mutation:
    return at_batch(index, lambda batch: with_records(batch, change(decode_records(batch))))


def set_header(index: int, **changes: int) -> Mutation:
    return at_batch(index, lambda batch: with_header(batch, **changes))


def add_to_header(index: int, field: str, value: int = 1) -> Mutation:
    return at_batch(
        index,
        lambda batch: with_header(batch, **{field: getattr(read_header(batch), field) + value}),
    )


def _first(**changes: object) -> Callable[[list[Record]], list[Record]]:
    return lambda records: [replace(records[0], **changes), *records[1:]]  # type: ignore[arg-type]


def _obsolete(records: list[Record]) -> list[Record]:
    return [Record(0, 1_000_000, b"a", b"1", (("h", b"a"),)), *records]


LOG_MUTATIONS: dict[str, Mutation] = {
    "a record is dropped": change_records(0, lambda records: records[:1]),
    "the first record is dropped": change_records(0, lambda records: records[1:]),
    "an obsolete record is there": change_records(0, _obsolete),
    "a value differs": change_records(1, _first(value=b"2")),
    "a value is null": change_records(0, _first(value=None)),
    "a tombstone has a value": change_records(2, _first(value=b"")),
    "a key differs": change_records(1, _first(key=b"x")),
    "a timestamp differs": change_records(0, _first(timestamp=7)),
    "a header differs": change_records(1, _first(headers=(("h", b"x"),))),
    "headers are gone": change_records(0, _first(headers=())),
    "an offset moved": change_records(0, _first(offset=0)),
    "a batch is dropped": lambda batches: [*batches[:1], *batches[2:]],
    "the first batch is dropped": lambda batches: batches[1:],
    "the last batch is dropped": lambda batches: batches[:-1],
    "an empty batch is dropped": lambda batches: [b for b in batches if read_header(b).count],
    "a batch is there twice": lambda batches: [batches[0], *batches],
    "batches change places": lambda batches: [batches[1], batches[0], *batches[2:]],
    "a batch too many": lambda batches: [*batches, with_header(batches[-1], base_offset=900)],
    "another base offset": add_to_header(1, "base_offset", -1),
    "another last offset": add_to_header(0, "last_offset_delta", -1),
    "another leader epoch": add_to_header(0, "leader_epoch"),
    "another leader epoch in an untouched batch": add_to_header(1, "leader_epoch"),
    "another producer": add_to_header(0, "producer_id"),
    "another producer epoch": add_to_header(0, "producer_epoch"),
    "another sequence": add_to_header(0, "base_sequence"),
    "a sequence of its own": set_header(1, base_sequence=4),
    "another codec": at_batch(0, lambda b: uncompressed(b)),
    "another largest timestamp": add_to_header(0, "max_timestamp"),
    "another largest timestamp of an empty batch": at_batch(
        -3, lambda b: with_header(b, max_timestamp=5)
    ),
    "another sequence of an empty batch": at_batch(-3, lambda b: with_header(b, base_sequence=9)),
    "another delete horizon": at_batch(2, lambda b: _stamped(b, 1)),
    "no delete horizon": at_batch(2, lambda b: unstamped(b)),
    "not transactional": add_to_header(3, "attributes", -0x10),
    "no control batch": add_to_header(4, "attributes", -0x20),
    "an abort for a commit": change_records(4, _first(key=b"\0\0\0\0")),
    "another coordinator": change_records(4, _first(value=b"\0\0\0\0\0\1")),
    "a marker is dropped": lambda batches: [*batches[:4], *batches[5:]],
    "append time in create time's place": add_to_header(1, "attributes", 0x08),
    "an aborted record is there": at_batch(
        -3,
        lambda b: with_records(
            with_header(b, base_timestamp=0), [Record(11, 1_000_000, b"b", b"9")]
        ),
    ),
    "nothing at all": lambda batches: [],
}


def uncompressed(batch: bytes) -> bytes:
    header = read_header(batch)
    made = encode_batch(
        decode_records(batch),
        base_offset=header.base_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_offset_delta=header.last_offset_delta,
    )
    return with_header(made, leader_epoch=header.leader_epoch)


def _stamped(batch: bytes, later_ms: int) -> bytes:
    """Move a delete horizon, and no timestamp."""
    header = read_header(batch)
    assert header.has_delete_horizon
    return encode_batch(
        decode_records(batch),
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        delete_horizon_ms=header.base_timestamp + later_ms,
    )


def unstamped(batch: bytes) -> bytes:
    header = read_header(batch)
    assert header.has_delete_horizon
    return encode_batch(
        decode_records(batch), base_offset=header.base_offset, leader_epoch=header.leader_epoch
    )


@pytest.mark.parametrize("name", LOG_MUTATIONS)
def test_a_wrong_log_is_refused(tmp_path: Path, name: str) -> None:
    one = rich(tmp_path)
    before = one.batches()
    after = LOG_MUTATIONS[name](list(before))
    assert after != before
    one.write(after)
    with pytest.raises(VerificationFailed) as caught:
        one.prove()
    assert caught.value.path == one.new.path(LOG)
    assert 0 <= caught.value.offset <= 900


@pytest.mark.slow
def test_a_flipped_bit_anywhere_is_refused(tmp_path: Path) -> None:
    one = rich(tmp_path)
    path = one.new.path(LOG)
    intact = path.read_bytes()
    for at in range(len(intact)):
        path.write_bytes(intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])
        with pytest.raises(VerificationFailed):
            one.prove()
    path.write_bytes(intact)
    one.prove()


@pytest.mark.parametrize("rest", [b"\0", bytes(100), b"x" * 61])
def test_bytes_behind_the_last_batch_are_refused(tmp_path: Path, rest: bytes) -> None:
    one = rich(tmp_path)
    size = one.new.path(LOG).stat().st_size
    with one.new.path(LOG).open("ab") as file:
        file.write(rest)
    with pytest.raises(VerificationFailed) as caught:
        one.prove()
    assert caught.value.position == size


@pytest.mark.parametrize(("kind", "layout"), [(INDEX, OFFSET_ENTRY), (TIME_INDEX, TIME_ENTRY)])
def test_a_wrong_index_entry_is_refused(
    tmp_path: Path, kind: str, layout: struct.Struct
) -> None:
    one = rich(tmp_path)
    path = one.new.path(kind)
    intact = path.read_bytes()
    entries = list(layout.iter_unpack(intact))
    assert entries
    wrong = [intact[layout.size :], intact[: -layout.size], intact + intact[-layout.size :], b""]
    for at, (key, value) in enumerate(entries):
        for entry in ((key + 1, value), (key, value + 1)):
            changed = [*entries[:at], entry, *entries[at + 1 :]]
            wrong.append(b"".join(layout.pack(*one) for one in changed))
    for data in wrong:
        path.write_bytes(data)
        with pytest.raises(VerificationFailed) as caught:
            one.prove()
        assert caught.value.path == path
    path.write_bytes(intact)
    one.prove()


def test_a_wrong_transaction_index_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    for at in (0, 2):  # the markers of emptied transactions need no entry
        world.append(pairs("a:9"), producer=(4, 0, at), transactional=True)
        marker = world.append_marker(4, 0, commit=False).header.base_offset
        world.note_aborted(AbortedTransaction(at, marker, 4, marker + 1))
    one = cleaned(world)
    path = one.new.path(TXN_INDEX)
    entries = parse_aborted(path.read_bytes(), path)
    assert len(entries) == 2
    first, second = entries
    for wrong in (
        [first],
        [second],
        [],
        [first, replace(second, first_offset=1)],
        [replace(first, producer_id=5), second],
        [first, second, AbortedTransaction(5, 6, 4, 7)],
    ):
        path.write_bytes(pack_aborted(wrong))
        with pytest.raises(VerificationFailed) as caught:
            one.prove()
        assert caught.value.path == path
    path.unlink()
    with pytest.raises(VerificationFailed):
        one.prove()


def test_the_error_says_where_and_nothing_of_what_is_in_records(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(pairs("secret-key:old secret-key:secret-value"))
    one = cleaned(world)
    (batch,) = one.batches()
    one.write([with_records(batch, [replace(decode_records(batch)[0], value=b"secret-vain!")])])
    with pytest.raises(VerificationFailed) as caught:
        one.prove()
    message = str(caught.value)
    assert (caught.value.position, caught.value.offset) == (0, 1)
    assert "secret" not in message
    assert "value is 12 bytes, expected 12 bytes; they differ from byte 9 on" in message


# --- in the course of a run -------------------------------------------------------------------


def test_nothing_is_swapped_when_two_keys_are_taken_for_one(tmp_path: Path) -> None:
    def clean_badly(world: World, settings: CleanerSettings) -> None:
        # With this for the point of the hash all keys have the same.
        clean_once(
            world.log,
            world.directory,
            world.now_ms,
            fs=FS,
            settings=settings,
            random_below=lambda bound: 0,
        )

    world = World(tmp_path)
    world.append(pairs("a:1 b:1"))
    world.roll()
    names = sorted(path.name for path in world.log.directory.iterdir())
    with pytest.raises(VerificationFailed) as caught:
        clean_badly(world, VERIFIED)
    assert caught.value.offset == 0
    assert world.values() == ["a:1", "b:1"]
    assert sorted(path.name for path in world.log.directory.iterdir()) == names
    clean_badly(world, SETTINGS)
    assert world.values() == ["b:1"]  # so there was something to be found
