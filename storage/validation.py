"""What a batch must be to get into a log, as Kafka's LogValidator decides it.

A batch is refused whole. What is accepted is the batch as it came, but for base offset and
leader epoch (outside the CRC), and, where the topic asks for it, the log append time or another
codec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from config.topic import TopicConfig
from protocol import batches
from protocol.batches import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, UnsupportedMagic
from protocol.compression import Codec, compress
from protocol.errors import ProtocolError
from protocol.records_plain import RecordStatus, Validation, validate_records_plain
from storage.errors import (
    BatchLargerThanSegment,
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    UnsupportedFormat,
)
from storage.files import Buffer
from storage.rolling import segment_bytes_max

_INT64_MAX = 2**63 - 1
_PRODUCER_CHOOSES = "producer"
_CODECS = {codec.label: codec for codec in Codec} | {"uncompressed": Codec.NONE}

# The plain twin serves until the kernels are loaded: the broker listens before numba is there.
_validate: Callable[[Buffer, int, int, int, bool], Validation] = validate_records_plain


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A batch that may be appended: its header and its bytes, which may be patched."""

    header: BatchHeader
    data: memoryview
    log_append_time_ms: int  # -1 when the producer's timestamps stay


def use_kernels() -> None:
    """Check records by the compiled kernel from now on."""
    global _validate
    from protocol.records import validate_records

    _validate = validate_records


def check_batch(
    records: Buffer, config: TopicConfig, now_ms: int, name: str, *, from_client: bool
) -> CheckedBatch:
    """Check one batch for a topic; `name` is the partition's, for messages.

    Raises CorruptBatch, UnsupportedFormat, BatchTooLarge, BatchLargerThanSegment, InvalidRecord
    or InvalidTimestamp.
    """
    header = _check_envelope(records, config, name, from_client=from_client)
    if from_client and (header.base_offset or header.attributes & batches.CONTROL_BIT):
        raise _usurpation(header, name)
    data = memoryview(records)
    if data.readonly:
        data = memoryview(bytearray(data))
    section = _section(data, header, config, name)
    needs_keys = config.compact and not header.is_control
    found = _validate(section, 0, len(section), header.count, needs_keys)
    if found.status != RecordStatus.VALID:
        raise _refusal(found, name)
    is_stamped = config.message_timestamp_type == "LogAppendTime"
    if header.is_control and not is_stamped:
        return CheckedBatch(header, data, -1)
    # Negative timestamps count as none, as in Kafka.
    max_timestamp = header.base_timestamp + found.timestamp_delta_max
    if max_timestamp < 0:
        max_timestamp = NO_TIMESTAMP
    stamped_ms = -1
    if is_stamped:
        stamped_ms = now_ms
    elif header.is_log_append_time:
        raise InvalidTimestamp(f"{name}: producers must not set the log append time")
    else:
        oldest = header.base_timestamp + found.timestamp_delta_min
        _check_timestamps(records, oldest, max_timestamp, config, now_ms, name)
    if config.compression_type != _PRODUCER_CHOOSES and not header.is_control:
        data = _recompress(header, data, section, config, name)
    if stamped_ms >= 0:
        batches.patch_log_append_time(data, 0, stamped_ms)
    elif header.max_timestamp != max_timestamp:
        # The time index is built on the header's largest timestamp, so it has to be true.
        batches.patch_max_timestamp(data, 0, max_timestamp)
    elif len(data) == header.size_bytes:
        return CheckedBatch(header, data, stamped_ms)
    return CheckedBatch(batches.read_header(data), data, stamped_ms)


def _check_envelope(
    records: Buffer, config: TopicConfig, name: str, *, from_client: bool
) -> BatchHeader:
    size = len(records)
    if size == 0:
        raise InvalidRecord(f"{name}: a produce request carries one batch for each partition")
    try:
        header = batches.read_header(records)
        if header.size_bytes != size:
            raise InvalidRecord(
                f"{name}: a produce request carries exactly one batch for each partition, "
                f"but a batch of {header.size_bytes} bytes came in {size} bytes"
            )
        _check_size(size, config, name)
        batches.check_crc(records, 0, size)
    except UnsupportedMagic as error:
        raise UnsupportedFormat(f"{name}: {error}") from error
    except ProtocolError as error:
        raise CorruptBatch(f"{name}: {error}") from error
    if header.count == 0 or header.last_offset_delta != header.count - 1:
        raise InvalidRecord(
            f"{name}: the batch counts {header.count} records but its last offset delta "
            f"is {header.last_offset_delta}"
        )
    # The group coordinator's own batches of a transaction have no sequence.
    is_idempotent = from_client and header.producer_id >= 0 and not header.is_control
    if is_idempotent and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord(
            f"{name}: producer {header.producer_id} wrote without an epoch or a sequence"
        )
    return header


def _usurpation(header: BatchHeader, name: str) -> InvalidRecord:
    """Return the error for a client's batch that only the broker itself may write."""
    if header.is_control:
        return InvalidRecord(f"{name}: clients must not write control batches")
    return InvalidRecord(
        f"{name}: the base offset of a batch to append must be 0, not {header.base_offset}"
    )


def _check_size(size: int, config: TopicConfig, name: str) -> None:
    if size > config.max_message_bytes:
        raise BatchTooLarge(
            f"{name}: the batch of {size} bytes exceeds max.message.bytes="
            f"{config.max_message_bytes}"
        )
    if size > segment_bytes_max(config):
        raise BatchLargerThanSegment(
            f"{name}: the batch of {size} bytes exceeds segment.bytes={segment_bytes_max(config)}"
        )


def _section(data: memoryview, header: BatchHeader, config: TopicConfig, name: str) -> Buffer:
    """Return the records of a batch, decompressed."""
    if header.attributes & batches.CODEC_MASK == Codec.NONE:
        return data[HEADER_SIZE:]
    try:
        return batches.record_section(data, 0, header, config.max_decompressed_message_bytes)
    except ProtocolError as error:
        raise CorruptBatch(f"{name}: the records do not decompress: {error}") from error


def _refusal(found: Validation, name: str) -> InvalidRecord:
    if found.status == RecordStatus.NULL_KEY:
        message = (
            f"Compacted topic cannot accept message without key in topic partition {name}."
        )
        errors = [(index, message) for index in found.null_key_indexes]
        return InvalidRecord("One or more records have been rejected", errors)
    cause = found.status.name.lower().replace("_", " ")
    message = f"{name}: record {found.index} of the batch is malformed ({cause})"
    return InvalidRecord(message, [(found.index, message)])


def _check_timestamps(
    records: Buffer, oldest: int, newest: int, config: TopicConfig, now_ms: int, name: str
) -> None:
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if newest > _INT64_MAX or oldest < -_INT64_MAX:
        raise InvalidTimestamp(f"{name}: the timestamps do not fit into 64 bits")
    if newest - now_ms <= after and now_ms - oldest <= before:
        return
    # Rarely: one is out of range, or a record has none at all, which is always accepted.
    message = (
        f"{name}: the timestamp is outside [{now_ms - before}, {now_ms + after}], the range of "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    )
    errors = [
        (index, message)
        for index, record in enumerate(
            batches.decode_records(records, 0, config.max_decompressed_message_bytes)
        )
        if record.timestamp != NO_TIMESTAMP
        and not now_ms - before <= record.timestamp <= now_ms + after
    ]
    if errors:
        raise InvalidTimestamp(
            "One or more records have been rejected due to invalid timestamp", errors
        )


def _recompress(
    header: BatchHeader, data: memoryview, section: Buffer, config: TopicConfig, name: str
) -> memoryview:
    """Bring a batch to the topic's codec, where it has another."""
    codec = _CODECS[config.compression_type]
    if header.codec == codec:
        return data
    level = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec)
    packed = bytes(section) if codec == Codec.NONE else compress(codec, section, level)
    recompressed = batches.replace_section(header, packed, codec)
    _check_size(len(recompressed), config, name)
    return memoryview(recompressed)
