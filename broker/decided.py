"""Which records of an internal topic count: those of a transaction once it is committed.

A group's offsets may be committed in a transaction (KIP-98). Such a record waits for the marker
that ends its producer's transaction, but a later one of its key outlives it: a plain commit takes
precedence, a tombstone takes it back (Kafka's OffsetMetadataManager).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from protocol.batches import BatchHeader, Record
from protocol.errors import ProtocolError
from protocol.legacy import decode_stored
from storage.transactions import read_marker

logger = logging.getLogger(__name__)

KeyValue = tuple[bytes, bytes | None]


def decided(
    batches: Iterable[tuple[BatchHeader, memoryview]], name: str
) -> Iterator[KeyValue]:
    """Yield the records that count, in the order in which they came to do so.

    A batch that cannot be read is left out, with an error that has the partition's name.
    """
    pending: dict[int, list[Record]] = {}  # by producer
    # Where the keys were last that were written while a transaction was open.
    latest: dict[bytes, int] = {}
    for header, data in batches:
        if header.is_control:
            marker = read_marker(header, data)
            held = pending.pop(header.producer_id, []) if marker else []
            if marker and marker.is_commit:
                yield from _materialize(held, latest)
            if not pending:
                latest.clear()
        elif header.is_transactional:
            pending.setdefault(header.producer_id, []).extend(_records(header, data, name))
        else:
            for record in _records(header, data, name):
                if record.key is not None:
                    if pending:
                        latest[record.key] = record.offset
                    yield record.key, record.value


def _materialize(records: Iterable[Record], latest: dict[bytes, int]) -> Iterator[KeyValue]:
    for record in records:
        if record.key is not None and record.offset > latest.get(record.key, -1):
            latest[record.key] = record.offset
            yield record.key, record.value


def _records(header: BatchHeader, data: memoryview, name: str) -> list[Record]:
    try:
        return decode_stored(data)
    except ProtocolError as error:
        logger.error("left out a batch log=%s base=%d error=%s", name, header.base_offset, error)
        return []
