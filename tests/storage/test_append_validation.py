"""What gets into a log, and that nothing of what does not is left behind."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.topic import TopicConfig
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    Record,
    batch_crc,
    patch_max_timestamp,
    read_header,
)
from odradek.protocol.compression import Codec
from odradek.protocol.control import encode_end_txn_marker
from odradek.storage import validation
from odradek.storage.allowance import RECORD_ERRORS_MAX, UNPACKED_BYTES_MAX, Allowance
from odradek.storage.errors import (
    BatchLargerThanSegment,
    BatchTooLarge,
    CorruptBatch,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    NotOneBatch,
    OutOfOrderSequence,
    StorageError,
    UnpackedTooMuch,
)
from odradek.storage.validation import check_batch
from tests.broker.raw_batches import RawBatch, RawRecord
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import COMPACT, Partition, make_batch

NOW = 1_700_000_000_000
DEFAULT = TopicConfig()
HOUR_MS = 3_600_000
CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def batch(
    keys: tuple[bytes | None, ...] = (b"a", b"b"), timestamp: int = NOW, **more: object
) -> bytearray:
    """A batch that any topic takes."""
    return bytearray(make_batch([(key, b"v") for key in keys], timestamp, **more))  # type: ignore[arg-type]


def patched(
    layout: str, position: int, value: int, crc: bool = True, **more: object
) -> bytearray:
    """A batch with one field of its header changed, and its CRC made right."""
    made = batch(**more)  # type: ignore[arg-type]
    struct.pack_into(layout, made, position, value)
    if crc:
        struct.pack_into(">I", made, 17, batch_crc(made, 0, len(made)))
    return made


def with_record_count(count: int) -> bytearray:
    """A batch that says of itself to hold more or fewer records than it does."""
    made = batch()
    struct.pack_into(">i", made, 57, count)
    struct.pack_into(">i", made, 23, count - 1)
    struct.pack_into(">I", made, 17, batch_crc(made, 0, len(made)))
    return made


def batch_of(*records: RawRecord) -> bytes:
    """A batch of records that may be wrong."""
    return RawBatch(records, base_timestamp=NOW).encode()


def overflowing(by_ms: int) -> bytearray:
    """A batch whose second record's timestamp lies past what 64 bits hold."""
    made = bytearray(make_batch([(b"a", b""), (b"b", b"")], [0, by_ms]))
    struct.pack_into(">q", made, 27, 2**63 - 1 if by_ms > 0 else -(2**63))
    struct.pack_into(">I", made, 17, batch_crc(made, 0, len(made)))
    return made


COMPACTED = replace(DEFAULT, cleanup_policy=COMPACT)
TIMELY = replace(DEFAULT, message_timestamp_before_max_ms=1000)
STAMPED = replace(DEFAULT, message_timestamp_type="LogAppendTime")

REFUSALS: dict[str, tuple[Callable[[], bytes | bytearray], TopicConfig, type[StorageError]]] = {
    "nothing": (lambda: b"", DEFAULT, NotOneBatch),
    "half a header": (lambda: batch()[:40], DEFAULT, NotOneBatch),
    "a byte too few": (lambda: batch()[:-1], DEFAULT, NotOneBatch),
    "a byte too many": (lambda: batch() + b"\0", DEFAULT, NotOneBatch),
    "two batches": (lambda: batch() + batch(), DEFAULT, NotOneBatch),
    "a wrong CRC": (lambda: patched(">I", 17, 1, crc=False), DEFAULT, CorruptBatch),
    "a changed record": (lambda: batch()[:-1] + b"x", DEFAULT, CorruptBatch),
    "magic 1": (lambda: patched("b", 16, 1), DEFAULT, NotOneBatch),
    "magic 3": (lambda: patched("b", 16, 3), DEFAULT, CorruptBatch),
    "codec 5": (lambda: patched(">h", 21, 5), DEFAULT, InvalidRecord),
    "codec 5 and a wrong CRC": (
        lambda: patched(">h", 21, 5, crc=False), DEFAULT, CorruptBatch,
    ),
    "a codec that it has not": (lambda: patched(">h", 21, Codec.GZIP), DEFAULT, InvalidRecord),
    "a length past its end": (lambda: patched(">i", 8, 1000), DEFAULT, NotOneBatch),
    "a length that no batch has": (lambda: patched(">i", 8, 40), DEFAULT, CorruptBatch),
    "a negative count": (lambda: patched(">i", 57, -1), DEFAULT, InvalidRecord),
    "a negative last offset": (lambda: patched(">i", 23, -1), DEFAULT, InvalidRecord),
    "a gap in its offsets": (
        lambda: batch_of(RawRecord(), RawRecord(offset_delta=3)), DEFAULT, InvalidRecord,
    ),
    "a base offset": (lambda: patched(">q", 0, 5), DEFAULT, InvalidRecord),
    "no records": (lambda: patched(">i", 57, 0), DEFAULT, InvalidRecord),
    "a count that its offsets belie": (lambda: patched(">i", 57, 3), DEFAULT, InvalidRecord),
    "one record too few": (lambda: with_record_count(3), DEFAULT, InvalidRecord),
    "one record too many": (lambda: with_record_count(1), DEFAULT, InvalidRecord),
    "very many records": (lambda: with_record_count(2**31 - 1), DEFAULT, InvalidRecord),
    "larger than the topic allows": (
        batch, replace(DEFAULT, max_message_bytes=len(batch()) - 1), BatchTooLarge,
    ),
    "larger than a segment": (
        batch, replace(DEFAULT, internal_segment_bytes=len(batch()) - 1), BatchLargerThanSegment,
    ),
    "too large once it is stored uncompressed": (
        lambda: batch((b"a" * 2000,), codec=Codec.GZIP),
        replace(DEFAULT, max_message_bytes=1_000, compression_type="uncompressed"),
        BatchTooLarge,
    ),
    "more than may be unpacked": (
        lambda: batch((b"a" * 2000,), codec=Codec.GZIP),
        replace(DEFAULT, max_decompressed_message_bytes=1_000),
        BatchTooLarge,
    ),
    "a control batch": (
        lambda: encode_end_txn_marker(
            commit=True,
            timestamp=NOW,
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
            base_offset=0,
        ),
        DEFAULT,
        InvalidRecord,
    ),
    "a producer without a sequence": (
        lambda: batch(producer=(1, 0, -1)), DEFAULT, InvalidRecord,
    ),
    "a producer without an epoch": (
        lambda: batch(producer=(7, -1, 0)), DEFAULT, InvalidProducerEpoch,
    ),
    "no key where keys are needed": (lambda: batch((b"a", None)), COMPACTED, InvalidRecord),
    "no key, compressed": (
        lambda: batch((b"a", None), codec=Codec.ZSTD), COMPACTED, InvalidRecord,
    ),
    "a log append time of its own": (
        lambda: patched(">h", 21, LOG_APPEND_TIME_BIT), DEFAULT, InvalidTimestamp,
    ),
    "a log append time of its own where the broker stamps": (
        lambda: patched(">h", 21, LOG_APPEND_TIME_BIT), STAMPED, InvalidTimestamp,
    ),
    "a timestamp of the far future": (
        lambda: batch(timestamp=NOW + HOUR_MS + 1), DEFAULT, InvalidTimestamp,
    ),
    "a timestamp of the far past": (
        lambda: batch(timestamp=NOW - 1001),
        replace(DEFAULT, message_timestamp_before_max_ms=1000),
        InvalidTimestamp,
    ),
    "timestamps past 64 bits": (
        lambda: overflowing(5),
        replace(DEFAULT, message_timestamp_after_max_ms=2**63 - 1),
        InvalidTimestamp,
    ),
    "timestamps before 64 bits": (lambda: overflowing(-5), DEFAULT, InvalidTimestamp),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_batch_leaves_no_trace(name: str) -> None:
    make, config, error = REFUSALS[name]
    fs = CrashFileSystem()
    partition = Partition(fs)
    for at in range(5):
        partition.append([(b"k%d" % at, b"v")], producer=(1, 0, at))
    log = partition.log
    log.config = config
    before = fs.files(Path("/data"))
    state = log.log_end_offset, log.size_bytes, log.producers.get(1), len(log.segments)
    with pytest.raises(error) as refused:
        log.append(make(), now_ms=NOW)
    assert type(refused.value) is error
    assert fs.files(Path("/data")) == before
    assert (log.log_end_offset, log.size_bytes, log.producers.get(1), len(log.segments)) == state
    log.config = DEFAULT
    assert log.append(batch(), now_ms=NOW).base_offset == 5


@pytest.mark.parametrize(
    ("producer", "error"),
    [((1, 0, 7), OutOfOrderSequence), ((1, 1, 3), OutOfOrderSequence), ((2, 0, 0), None)],
)
def test_a_refused_producer_leaves_no_trace(
    producer: tuple[int, int, int], error: type[StorageError] | None
) -> None:
    fs = CrashFileSystem()
    partition = Partition(fs)
    partition.append([(b"k", b"v")] * 3, producer=(1, 0, 0))
    before = fs.files(Path("/data"))
    if error is None:
        partition.append([(b"k", b"v")], producer=producer)
        return
    with pytest.raises(error):
        partition.append([(b"k", b"v")], producer=producer)
    assert fs.files(Path("/data")) == before
    assert partition.log.log_end_offset == 3


def test_an_old_epoch_is_fenced() -> None:
    partition = Partition(CrashFileSystem())
    partition.append([(b"k", b"v")], producer=(1, 4, 0))
    with pytest.raises(InvalidProducerEpoch):
        partition.append([(b"k", b"v")], producer=(1, 3, 1))


def test_records_at_fault_are_named() -> None:
    log = Partition(CrashFileSystem(), config=COMPACTED).log
    with pytest.raises(InvalidRecord) as refused:
        log.append(batch((b"a", None, b"b", None)), now_ms=NOW)
    assert [index for index, _ in refused.value.record_errors] == [1, 3]
    log.config = replace(DEFAULT, message_timestamp_before_max_ms=1000)
    late = make_batch(
        [(b"k", b"v")] * 5, [NOW, NOW - 1001, -1, NOW + HOUR_MS + 1, NOW - 1000]
    )
    with pytest.raises(InvalidTimestamp) as too_late:
        log.append(late, now_ms=NOW)
    assert [index for index, _ in too_late.value.record_errors] == [1, 3]


def test_all_records_at_fault_are_named_whatever_their_fault() -> None:
    log = Partition(CrashFileSystem(), config=COMPACTED).log
    with pytest.raises(InvalidRecord) as keyless:
        log.append(batch((None,) * 200), now_ms=NOW)
    assert [index for index, _ in keyless.value.record_errors] == list(range(200))
    early = RawRecord(timestamp_delta=-2000)
    log.config = replace(COMPACTED, message_timestamp_before_max_ms=1000)
    mixed = batch_of(RawRecord(key=None), early, RawRecord(), replace(early, key=None))
    with pytest.raises(InvalidTimestamp) as both:
        log.append(mixed, now_ms=NOW)
    assert [index for index, _ in both.value.record_errors] == [0, 1, 3]
    assert ["key" in message for _, message in both.value.record_errors] == [True, False, True]
    log.config = STAMPED
    with pytest.raises(InvalidTimestamp) as stamped:
        log.append(patched(">h", 21, LOG_APPEND_TIME_BIT), now_ms=NOW)
    assert [index for index, _ in stamped.value.record_errors] == [0, 1]


def test_so_many_records_at_fault_are_named_that_the_broker_is_not_held_up() -> None:
    log = Partition(CrashFileSystem(), config=replace(COMPACTED, max_message_bytes=2**20)).log
    with pytest.raises(InvalidRecord) as refused:
        log.append(batch((None,) * (RECORD_ERRORS_MAX + 5)), now_ms=NOW)
    assert len(refused.value.record_errors) == RECORD_ERRORS_MAX


def test_the_batches_of_one_request_name_so_many_records_together() -> None:
    log = Partition(CrashFileSystem(), config=COMPACTED).log
    allowance = Allowance()
    allowance.record_errors = 3
    named = []
    for config in (COMPACTED, COMPACTED, replace(DEFAULT, message_timestamp_before_max_ms=1)):
        log.config = config
        with pytest.raises(InvalidRecord) as refused:
            log.append(batch((None, None), NOW - 9), now_ms=NOW, allowance=allowance)
        assert isinstance(refused.value, InvalidTimestamp) == (config is not COMPACTED)
        named.append([index for index, _ in refused.value.record_errors])
    assert named == [[0, 1], [0], []]


NO_TIME = RawRecord(timestamp_delta=-NOW - 1)  # the batch's base timestamp is NOW


@pytest.mark.parametrize(
    ("config", "records", "error"),
    [
        (COMPACTED, [RawRecord(), RawRecord(), RawRecord(key=None)], InvalidRecord),
        (TIMELY, [NO_TIME, NO_TIME, RawRecord(timestamp_delta=HOUR_MS + 1)], InvalidTimestamp),
        (TIMELY, [RawRecord(), RawRecord(), RawRecord(timestamp_delta=-2000)], InvalidTimestamp),
        # Whether it is wrong is found out by looking at all of them.
        (TIMELY, [NO_TIME, NO_TIME, RawRecord(timestamp_delta=-2000)], BatchTooLarge),
        (TIMELY, [NO_TIME, NO_TIME, NO_TIME], BatchTooLarge),
    ],
)
def test_no_more_records_are_looked_at_one_by_one_than_the_request_may_have(
    config: TopicConfig, records: list[RawRecord], error: type[StorageError]
) -> None:
    log = Partition(CrashFileSystem(), config=config).log
    allowance = Allowance()
    allowance.records_looked_at = 2
    with mock.patch.object(validation, "locate_record", wraps=validation.locate_record) as looked:
        for _ in range(2):
            with pytest.raises(StorageError) as refused:
                log.append(batch_of(*records), now_ms=NOW, allowance=allowance)
            assert type(refused.value) is error
            assert getattr(refused.value, "record_errors", ()) == ()
    assert looked.call_count == 2


def test_the_batches_of_one_request_unpack_to_so_much_together() -> None:
    log = Partition(CrashFileSystem()).log
    allowance = Allowance()
    packed = make_batch([(b"k", bytes(1000))], NOW, codec=Codec.GZIP)
    log.append(packed, now_ms=NOW, allowance=allowance)
    used = UNPACKED_BYTES_MAX - allowance.unpacked_bytes
    assert 1000 < used < 1100
    allowance.unpacked_bytes = 1
    log.append(packed, now_ms=NOW, allowance=allowance)
    with pytest.raises(UnpackedTooMuch):
        log.append(packed, now_ms=NOW, allowance=allowance)
    log.append(batch(), now_ms=NOW, allowance=allowance)  # what is not packed costs nothing


def test_a_batch_that_fails_to_unpack_counts_against_the_allowance() -> None:
    config = replace(DEFAULT, max_decompressed_message_bytes=500)
    log = Partition(CrashFileSystem(), config=config).log
    allowance = Allowance()
    large = make_batch([(b"k", bytes(1000))], NOW, codec=Codec.GZIP)
    torn = RawBatch(packed=b"no gzip", codec=Codec.GZIP, base_timestamp=NOW).encode()
    for records, error in ((large, BatchTooLarge), (torn, InvalidRecord)):
        before = allowance.unpacked_bytes
        with pytest.raises(error):
            log.append(records, now_ms=NOW, allowance=allowance)
        assert before - allowance.unpacked_bytes == 500


def test_of_malformed_records_none_is_named_as_if_the_others_were_right() -> None:
    log = Partition(CrashFileSystem(), config=COMPACTED).log
    for records in (
        (RawRecord(key=None), RawRecord(tail=b"x")),
        (RawRecord(), RawRecord(offset_delta=3)),
    ):
        with pytest.raises(InvalidRecord, match="record 1 of the batch") as refused:
            log.append(batch_of(*records), now_ms=NOW)
        assert refused.value.record_errors == ()


@pytest.mark.parametrize("timestamp", [NOW - 1000, NOW, NOW + HOUR_MS, -1])
def test_timestamps_at_the_limits_are_taken(timestamp: int) -> None:
    log = Partition(CrashFileSystem()).log
    log.config = replace(DEFAULT, message_timestamp_before_max_ms=1000)
    log.append(make_batch([(b"k", b"v")] * 2, [timestamp, NOW]), now_ms=NOW)
    assert log.active.max_timestamp == max(timestamp, NOW)


def test_a_record_without_a_timestamp_hides_no_other() -> None:
    log = Partition(CrashFileSystem()).log
    log.config = replace(DEFAULT, message_timestamp_before_max_ms=1000)
    with pytest.raises(InvalidTimestamp):
        log.append(make_batch([(b"k", b"v")] * 2, [-1, NOW - 5000]), now_ms=NOW)


def test_limits_do_not_matter_where_the_broker_sets_the_time() -> None:
    log = Partition(CrashFileSystem()).log
    log.config = replace(DEFAULT, message_timestamp_type="LogAppendTime")
    log.append(batch(timestamp=NOW + 10 * HOUR_MS), now_ms=NOW)
    assert log.active.max_timestamp == NOW


@pytest.mark.parametrize("stored", [*CODECS, "producer"])
@pytest.mark.parametrize("sent", CODECS)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_batch_is_stored_with_the_topics_codec_and_time(
    sent: str, stored: str, kind: str
) -> None:
    config = replace(DEFAULT, compression_type=stored, message_timestamp_type=kind)
    partition = Partition(CrashFileSystem(), config=config)
    records = [(b"k%d" % at, b"value" * at) for at in range(10)]
    times = [NOW - at for at in range(10)]
    partition.append([(b"first", None)])
    sent_batch = make_batch(records, times, codec=CODECS[sent], producer=(3, 0, 0))
    done = partition.log.append(sent_batch, now_ms=NOW)
    assert done.log_append_time_ms == (NOW if kind == "LogAppendTime" else -1)
    found = partition.batches()[1]
    header = read_header(found.data)
    assert header.codec == CODECS[sent if stored == "producer" else stored]
    assert header.crc == batch_crc(found.data, 0, len(found.data))
    assert (header.base_offset, header.count, header.base_sequence) == (1, 10, 0)
    assert header.is_log_append_time == (kind == "LogAppendTime")
    assert header.max_timestamp == NOW
    expected = times if kind == "CreateTime" else [NOW] * 10
    assert decode_records(found.data) == [
        Record(1 + at, time, key, value)
        for at, ((key, value), time) in enumerate(zip(records, expected, strict=True))
    ]
    if kind == "CreateTime" and stored in (sent, "producer"):
        assert found.data[HEADER_SIZE:] == sent_batch[HEADER_SIZE:]
        assert found.data[17:] == sent_batch[17:]  # all that the CRC covers, and the CRC


def test_a_lying_maximum_timestamp_is_put_right() -> None:
    """The time index is built from it."""
    partition = Partition(CrashFileSystem())
    made = batch()
    patch_max_timestamp(made, 0, NOW + 12345)
    partition.log.append(made, now_ms=NOW)
    header = read_header(partition.batches()[0].data)
    assert header.max_timestamp == partition.log.active.max_timestamp == NOW
    assert header.crc == batch_crc(partition.batches()[0].data, 0, header.size_bytes)


@pytest.mark.parametrize(
    ("config", "more", "kept"),
    [
        (DEFAULT, {}, 0x7FC0),
        (DEFAULT, {"max_timestamp": 5}, DELETE_HORIZON_BIT),
        (STAMPED, {}, DELETE_HORIZON_BIT | LOG_APPEND_TIME_BIT),
        (replace(DEFAULT, compression_type="zstd"), {}, Codec.ZSTD),
        (replace(STAMPED, compression_type="zstd"), {}, LOG_APPEND_TIME_BIT | Codec.ZSTD),
    ],
)
def test_attributes_without_a_meaning_last_until_the_batch_is_changed(
    config: TopicConfig, more: dict[str, int], kept: int
) -> None:
    partition = Partition(CrashFileSystem(), config=config)
    sent = RawBatch([RawRecord()], flags=0x7FC0, base_timestamp=NOW, **more)  # type: ignore[arg-type]
    partition.log.append(sent.encode(), now_ms=NOW)
    assert read_header(partition.batches()[0].data).attributes == kept


def test_a_segment_has_to_hold_the_batch_as_it_is_stored() -> None:
    made = batch((b"a" * 5000,))
    small = replace(DEFAULT, internal_segment_bytes=1000)
    with pytest.raises(BatchLargerThanSegment):
        Partition(CrashFileSystem(), config=small).log.append(made, now_ms=NOW)
    packing = replace(small, compression_type="zstd")
    Partition(CrashFileSystem(), config=packing).log.append(made, now_ms=NOW)


def test_negative_timestamps_count_as_none() -> None:
    partition = Partition(CrashFileSystem())
    partition.append([(b"k", b"v")] * 2, [-5, -7])
    assert read_header(partition.batches()[0].data).max_timestamp == -1
    assert partition.log.offset_for_timestamp(0) is None


def test_control_batches_of_the_broker_itself_are_taken() -> None:
    partition = Partition(CrashFileSystem(), config=COMPACTED)
    marker = encode_end_txn_marker(
        commit=True,
        timestamp=NOW,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        base_offset=0,
    )
    done = partition.log.append(marker, now_ms=NOW, from_client=False)
    assert done.last_offset == 0


@given(
    at=st.integers(0, len(batch()) - 1),
    octets=st.binary(min_size=1, max_size=8),
    fix_crc=st.booleans(),
)
def test_hostile_bytes_are_refused_or_stored_as_a_sound_batch(
    at: int, octets: bytes, fix_crc: bool
) -> None:
    made = batch(producer=(9, 0, 0))
    made[at : at + len(octets)] = octets
    if fix_crc and len(made) > HEADER_SIZE:
        struct.pack_into(">I", made, 17, batch_crc(made, 0, len(made)))
    try:
        checked = check_batch(bytes(made), DEFAULT, NOW, "t-0", from_client=True)
    except StorageError:
        return
    header = checked.header
    assert header == read_header(checked.data)
    assert header.crc == batch_crc(checked.data, 0, len(checked.data))
    records = decode_records(checked.data)
    assert [record.offset for record in records] == list(range(header.count))
    assert header.max_timestamp == max(-1, *(record.timestamp for record in records))
