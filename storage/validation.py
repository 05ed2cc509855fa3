"""Checks whether a batch may be appended to a log, by the rules of Kafka's LogValidator.

A batch is refused whole. An accepted batch is stored unchanged except for its base offset and
leader epoch (outside the CRC), and, where the topic asks for it, the log append time or another
codec.

A producer repeats a batch that the broker reports as corrupt. So only bytes that may have been
damaged in transit are called corrupt; an error under a correct CRC is an invalid record.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.protocol import batches
from odradek.protocol.batch_records import unpack_section
from odradek.protocol.batches import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, UnsupportedMagic
from odradek.protocol.compression import DecompressedTooLarge
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records_plain import (
    NO_LIMIT,
    RecordStatus,
    TooManyItems,
    Validation,
    locate_record,
    validate_records_plain,
)
from odradek.storage.allowance import (
    RECORDS_LOOKED_AT_MAX,
    UNPACKED_BYTES_MAX,
    Allowance,
    TooLaborious,
    counted_bytes,
    unlimited,
)
from odradek.storage.errors import (
    BatchLargerThanSegment,
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    NotOneBatch,
    StorageError,
    UnpackedTooMuch,
)
from odradek.storage.files import Buffer
from odradek.storage.recompression import check_size, recompress
from odradek.storage.rolling import segment_bytes_max

_INT64_MAX = 2**63 - 1
_PRODUCER_CHOOSES = "producer"
# The size to count for a batch that does not unpack: how much of it was unpacked is not known.
_TORN_BYTES = 8 * 1024 * 1024
_RECORDS_REJECTED = "One or more records have been rejected"
_TIMES_REJECTED = f"{_RECORDS_REJECTED} due to invalid timestamp"

# The plain twin serves until the kernels are loaded: the broker listens before it imports numba.
_validate: Callable[[Buffer, int, int, int, bool, int], Validation] = validate_records_plain


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A batch that may be appended: its header and its bytes, which may be patched."""

    header: BatchHeader
    data: memoryview
    log_append_time_ms: int  # -1 when the producer's timestamps stay


def use_kernels() -> None:
    """Check records by the compiled kernel from now on."""
    global _validate
    from odradek.protocol.records import validate_records

    _validate = validate_records


def check_batch(
    records: Buffer,
    config: TopicConfig,
    now_ms: int,
    name: str,
    *,
    from_client: bool,
    allowance: Allowance | None = None,
) -> CheckedBatch:
    """Check one batch for a topic; `name` is the partition's, for messages.

    Of a batch that is not from a client, but from this broker, only the size is checked.
    Without an allowance the time has no limit. Raises NotOneBatch, CorruptBatch, BatchTooLarge,
    BatchLargerThanSegment, InvalidRecord, InvalidTimestamp or UnpackedTooMuch; TooLaborious
    leaves the batch unchanged, to be checked again with a larger allowance.
    """
    is_stamped = config.message_timestamp_type == "LogAppendTime"
    is_recompressed = config.compression_type != _PRODUCER_CHOOSES
    if not (from_client or is_stamped or is_recompressed):
        return _check_size_alone(records, config, name)
    header = _check_envelope(records, config, name, from_client=from_client)
    data = _writable(records)
    section = _section(data, header, config, name, allowance)
    is_control = header.is_control
    found = _walk(section, header.count, config.compact and not is_control, allowance)
    if found.status is not RecordStatus.VALID or header.is_log_append_time:
        raise _refusal(_Suspect(header, section, config, now_ms, name, allowance), found)
    if is_control and not is_stamped:
        return CheckedBatch(header, data, -1)
    # Negative timestamps count as none, as in Kafka.
    max_timestamp = header.base_timestamp + found.timestamp_delta_max
    if max_timestamp < 0:
        max_timestamp = NO_TIMESTAMP
    stamped_ms = -1
    if is_stamped:
        stamped_ms = now_ms
    else:
        oldest = header.base_timestamp + found.timestamp_delta_min
        if (
            max_timestamp - now_ms > config.message_timestamp_after_max_ms
            or now_ms - oldest > config.message_timestamp_before_max_ms
            or max_timestamp > _INT64_MAX
            or oldest < -_INT64_MAX
        ):
            is_late = max_timestamp - now_ms > config.message_timestamp_after_max_ms
            is_certain = is_late or max_timestamp > _INT64_MAX or oldest != NO_TIMESTAMP
            suspect = _Suspect(header, section, config, now_ms, name, allowance)
            _refuse_timestamps(suspect, is_certain=is_certain)
    if is_recompressed and not is_control:
        data = recompress(header, data, section, config, name, allowance)
    _check_fits_segment(len(data), config, name)
    if stamped_ms >= 0:
        batches.patch_log_append_time(data, 0, stamped_ms)
    elif header.max_timestamp != max_timestamp:
        # The time index relies on the header's largest timestamp, so it has to be correct.
        batches.patch_max_timestamp(data, 0, max_timestamp)
    elif len(data) == header.size_bytes:
        return CheckedBatch(header, data, stamped_ms)
    return CheckedBatch(batches.read_header(data), data, stamped_ms)


def _check_size_alone(records: Buffer, config: TopicConfig, name: str) -> CheckedBatch:
    """Check a batch that this broker has just encoded: its contents are valid."""
    header = read_one(records, name)
    check_size(len(records), config, name)
    _check_fits_segment(len(records), config, name)
    return CheckedBatch(header, _writable(records), -1)


def _writable(records: Buffer) -> memoryview:
    data = memoryview(records)
    return memoryview(bytearray(data)) if data.readonly else data


def _check_fits_segment(size_bytes: int, config: TopicConfig, name: str) -> None:
    bytes_max = segment_bytes_max(config)
    if size_bytes > bytes_max:
        raise BatchLargerThanSegment(
            f"{name}: the batch of {size_bytes} bytes exceeds segment.bytes={bytes_max}"
        )


def read_one(records: Buffer, name: str) -> BatchHeader:
    """Read the header of bytes that must be exactly one batch.

    Raises NotOneBatch, and CorruptBatch or InvalidRecord for a header that no batch can have.
    """
    try:
        header = batches.read_header(records)
    except ProtocolError as error:
        raise _impossible(records, error, name) from error
    if header.size_bytes != len(records):
        raise _not_one(len(records), header.size_bytes, name)
    return header


def _check_envelope(
    records: Buffer, config: TopicConfig, name: str, *, from_client: bool
) -> BatchHeader:
    size = len(records)
    header = read_one(records, name)
    if from_client and header.base_offset != 0:
        raise InvalidRecord(
            f"{name}: the base offset of a batch to append must be 0, not {header.base_offset}"
        )
    check_size(size, config, name)
    try:
        batches.check_crc(records, 0, size)
    except ProtocolError as error:
        raise CorruptBatch(f"{name}: {error}") from error
    if header.count == 0 or header.last_offset_delta != header.count - 1:
        raise InvalidRecord(
            f"{name}: the batch counts {header.count} records but its last offset delta "
            f"is {header.last_offset_delta}"
        )
    if from_client and header.is_control:
        raise InvalidRecord(f"{name}: clients must not write control batches")
    # The batches that the group coordinator writes in a transaction have no sequence.
    is_idempotent = from_client and header.producer_id >= 0 and not header.is_control
    if is_idempotent and header.base_sequence < 0:
        raise InvalidRecord(f"{name}: producer {header.producer_id} wrote without a sequence")
    return header


def _impossible(records: Buffer, error: ProtocolError, name: str) -> StorageError:
    """Return the error for bytes that do not begin with a possible header of a batch."""
    size = len(records)
    if isinstance(error, UnsupportedMagic) or size < HEADER_SIZE:
        return NotOneBatch(
            f"{name}: a produce request carries exactly one batch for each partition, but {error}"
        )
    fields = batches.HEADER.unpack_from(records)
    claimed = fields[batches.LENGTH] + batches.LOG_OVERHEAD
    if fields[batches.MAGIC_BYTE] != batches.MAGIC:
        return CorruptBatch(f"{name}: {error}")
    if HEADER_SIZE <= claimed != size:
        return _not_one(size, claimed, name)
    # The CRC does not cover the base offset, and Kafka checks that offset without it.
    is_as_sent = fields[batches.CRC] == batches.batch_crc(records, 0, size)
    if claimed == size and (is_as_sent or fields[batches.BASE_OFFSET] != 0):
        return InvalidRecord(f"{name}: {error}")
    return CorruptBatch(f"{name}: {error}")


def _not_one(size: int, claimed: int, name: str) -> NotOneBatch:
    return NotOneBatch(
        f"{name}: a produce request carries exactly one batch for each partition, "
        f"but a batch of {claimed} bytes came in {size} bytes"
    )


def _section(
    data: memoryview,
    header: BatchHeader,
    config: TopicConfig,
    name: str,
    allowance: Allowance | None,
) -> Buffer:
    """Return the records of a batch, decompressed."""
    if not header.attributes & batches.CODEC_MASK:
        return data[HEADER_SIZE:]
    allowance = allowance or unlimited()
    if allowance.unpacked_bytes <= 0:
        raise UnpackedTooMuch(
            f"{name}: the batches before it in the request unpack to over {UNPACKED_BYTES_MAX} "
            "bytes; send it again"
        )
    bound, option = min(
        (config.max_decompressed_message_bytes, "max.decompressed.message.bytes"),
        (config.odradek_append_decompressed_bytes_max, "odradek.append.decompressed.bytes.max"),
    )
    codec, packed_bytes = header.codec, len(data) - HEADER_SIZE
    bound_at_once = allowance.unpacked_bytes_at_once(codec, packed_bytes)
    try:
        section, members = unpack_section(data, 0, header, min(bound, bound_at_once))
    except DecompressedTooLarge as error:
        if bound_at_once < bound:
            raise TooLaborious from error
        allowance.spend_unpacking(codec, packed_bytes, bound)
        # A producer splits the batch after this error.
        raise BatchTooLarge(f"{name}: {error} ({option})") from error
    except ProtocolError as error:
        allowance.spend_unpacking(codec, packed_bytes, min(bound, bound_at_once, _TORN_BYTES))
        raise InvalidRecord(f"{name}: the records do not decompress: {error}") from error
    allowance.spend_unpacking(codec, packed_bytes, counted_bytes(len(section), members))
    return section


def _walk(
    section: Buffer, count: int, needs_keys: bool, allowance: Allowance | None
) -> Validation:
    """Check all records; raises TooLaborious."""
    if allowance is None:
        return _validate(section, 0, len(section), count, needs_keys, NO_LIMIT)
    if _validate is not validate_records_plain:
        size = len(section)
        allowance.spend_walking(size)
        return _validate(section, 0, size, count, needs_keys, NO_LIMIT)
    try:
        found = _validate(section, 0, len(section), count, needs_keys, allowance.items)
    except TooManyItems as error:
        raise TooLaborious from error
    allowance.items -= found.items
    return found


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A batch of which some records may be at fault, and the rules to check them by."""

    header: BatchHeader
    section: Buffer
    config: TopicConfig
    now_ms: int
    name: str
    allowance: Allowance | None


def _refusal(suspect: _Suspect, found: Validation) -> InvalidRecord:
    """Return the error for records that are malformed, lack a key, or are stamped already."""
    if found.status in (RecordStatus.VALID, RecordStatus.NULL_KEY, RecordStatus.OFFSET_GAP):
        _refuse_records(suspect)
    # The records at fault are after those that were checked.
    if found.status == RecordStatus.VALID:
        return InvalidTimestamp(_TIMES_REJECTED)
    if found.status == RecordStatus.NULL_KEY:
        return InvalidRecord(_RECORDS_REJECTED)
    cause = found.status.name.lower().replace("_", " ")
    return InvalidRecord(
        f"{suspect.name}: record {found.index} of the batch is malformed ({cause})"
    )


def _refuse_timestamps(suspect: _Suspect, *, is_certain: bool) -> None:
    """Raise an error if any timestamp is wrong, which is known beforehand with `is_certain`.

    A record without any timestamp is always accepted, so there may be nothing to raise.
    """
    if not _refuse_records(suspect):
        if is_certain:
            raise InvalidTimestamp(_TIMES_REJECTED)
        # A producer splits the batch after this error.
        raise BatchTooLarge(
            f"{suspect.name}: over {RECORDS_LOOKED_AT_MAX} records of a request, some without a "
            "timestamp, to compare with message.timestamp.before.max.ms"
        )


def _refuse_records(suspect: _Suspect) -> bool:
    """Raise an error that names each record without a needed key or with a wrong timestamp.

    The allowance limits the records checked and named; returns whether all were checked.
    """
    header, section, config = suspect.header, suspect.section, suspect.config
    now_ms, name = suspect.now_ms, suspect.name
    allowance = suspect.allowance or unlimited()
    no_key = f"Compacted topic cannot accept message without key in topic partition {name}."
    oldest = now_ms - config.message_timestamp_before_max_ms
    newest = now_ms + config.message_timestamp_after_max_ms
    stamps = config.message_timestamp_type == "LogAppendTime"
    errors: list[tuple[int, str]] = []
    is_wrong = is_time_wrong = False
    position, end, index = 0, len(section), 0
    count = min(header.count, allowance.records_looked_at)
    allowance.spend_looking(count)
    for index in range(count):
        position, timestamp_delta, _, _, key_length, *_ = locate_record(section, position, end)
        timestamp = header.base_timestamp + timestamp_delta
        if config.compact and key_length < 0:
            cause = no_key
        elif header.is_log_append_time:
            is_time_wrong = True
            cause = f"{name}: producers must not set the log append time"
        elif (
            not stamps
            and timestamp != NO_TIMESTAMP
            and not max(oldest, -_INT64_MAX) <= timestamp <= min(newest, _INT64_MAX)
        ):
            is_time_wrong = True
            cause = (
                f"{name}: timestamp {timestamp} is outside [{oldest}, {newest}], the range "
                "of message.timestamp.before.max.ms and message.timestamp.after.max.ms"
            )
        else:
            continue
        is_wrong = True
        if len(errors) == allowance.record_errors:
            break
        errors.append((index, cause))
    allowance.records_looked_at -= min(index + 1, count)
    allowance.record_errors -= len(errors)
    if is_time_wrong:
        raise InvalidTimestamp(_TIMES_REJECTED, errors)
    if is_wrong:
        raise InvalidRecord(_RECORDS_REJECTED, errors)
    return count == header.count
