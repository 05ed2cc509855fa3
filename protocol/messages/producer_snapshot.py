"""The .snapshot file beside a segment: the state of each producer at an offset.

    | version i16 = 1 | ProducerSnapshot: crc u32, entries |

The CRC-32C covers the bytes after it, to the end of the file. Kafka's source:
ProducerStateManager.
"""

from __future__ import annotations

from odradek.protocol.schema import message, struct
from odradek.protocol.wire import int16, int32, int64, uint32


@struct
class ProducerEntry:
    """A producer and its last batch; the sequence and offset are those of its last record."""

    producer_id: int64
    epoch: int16
    last_sequence: int32
    last_offset: int64
    offset_delta: int32
    timestamp: int64
    coordinator_epoch: int32
    current_txn_first_offset: int64


@message(versions="1", flexible="none")
class ProducerSnapshot:
    """The producers; coordinator_epoch and current_txn_first_offset are -1 for none."""

    crc: uint32
    producer_entries: list[ProducerEntry]
