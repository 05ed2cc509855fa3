"""The shape of a Produce request of one batch: all that its producer sends again the next time.

Two requests of the same shape differ in their numbers and in their batches alone:

    | key i16 | version i16 | correlation id i32 | client id … index | size | batch | tags |
    0                       4                    8                   end

and so do their answers, but for three offsets and times in a row:

    | size | correlation id i32 | … index, error | base offset | append time | start offset | … |
    0      4                                     offsets_at

So the second one needs no decoder, and its answer is a copy that is filled in.
"""

from __future__ import annotations

import struct

from odradek.broker.produce.appending import ZSTD_SINCE
from odradek.broker.produce.outcomes import accepted
from odradek.dataclass import dataclass
from odradek.protocol.batches import HEADER_SIZE
from odradek.protocol.errors import ProtocolError
from odradek.protocol.frames import SIZE, RequestHeader, encode_request, encode_response
from odradek.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.schema import info_of
from odradek.protocol.wire import read_uvarint, uvarint

KEY_AT = 8
"""The position of the bytes that are the same in all requests of a shape."""
_CORRELATION_AT = 4
_FLEXIBLE_SINCE = info_of(ProduceRequest).flexible.first
# The empty tagged sections of the partition, the topic and the request.
_NO_TAGS = bytes(3)
# A shape is kept, so that a long client id is not.
_END_MAX = 1_024
_OFFSETS = struct.Struct(">qqq")
# Numbers that are nowhere else in an answer.
_BLANK = (0x6FA7_31C4_9E05_B82D, 0x6A1D_F08B_53E2_C794, 0x6C58_2E9B_D731_04F6)


@dataclass(frozen=True, slots=True)
class Shape:
    """The constant part of the requests of a shape, and their answer with blanks."""

    version: int
    topic_name: str  # empty where the topic is named by its id
    topic_id: bytes
    index: int
    acks: int
    is_flexible: bool
    answer: bytes
    offsets_at: int

    def records(self, frame: memoryview, end: int) -> memoryview | None:
        """Return the batch of a request, whose size is at `end`; None for one of another shape."""
        size = len(frame)
        if end + HEADER_SIZE > size:
            return None
        if self.is_flexible:
            try:
                above, start = read_uvarint(frame, end)
            except ProtocolError:
                return None
            stop = start + above - 1
            if stop != size - len(_NO_TAGS) or frame[stop:] != _NO_TAGS:
                return None
        else:
            start, stop = end + SIZE.size, size
            if SIZE.unpack_from(frame, end)[0] != stop - start:
                return None
        return frame[start:stop] if stop - start >= HEADER_SIZE else None

    def fill_in(
        self, number: int, base_offset: int, append_time_ms: int, start_offset: int
    ) -> bytearray:
        """Return the framed answer to the request with a correlation id."""
        answer = bytearray(self.answer)
        SIZE.pack_into(answer, _CORRELATION_AT, number)
        _OFFSETS.pack_into(answer, self.offsets_at, base_offset, append_time_ms, start_offset)
        return answer

    def encode(self, number: int, partition: PartitionProduceResponse) -> bytes:
        """Return any other framed answer."""
        return _encode(self.version, number, self.topic_name, self.topic_id, partition)


def end_of(frame: memoryview, header: RequestHeader, request: ProduceRequest) -> int:
    """Return where the shape of a request ends; 0 for a request that is too large to have one.

    A request has a shape if it has one batch of no transaction, which may have any codec, and is
    answered.
    """
    topics, version = request.topic_data, header.api_version
    if len(topics) != 1 or len(topics[0].partition_data) != 1 or version < ZSTD_SINCE:
        return 0
    records = topics[0].partition_data[0].records
    if not records or request.acks not in (1, -1) or request.transactional_id is not None:
        return 0
    size = len(records)
    if version >= _FLEXIBLE_SINCE:
        end = len(frame) - len(_NO_TAGS) - size - len(uvarint(size + 1))
    else:
        end = len(frame) - size - SIZE.size
    return end if KEY_AT < end <= _END_MAX else 0


def shape_of(frame: memoryview, header: RequestHeader, request: ProduceRequest) -> Shape | None:
    """Return the shape of a request for which end_of() is not 0.

    None for one that is not as the encoder here encodes it, such as with tags that have no
    meaning here.
    """
    version, number = header.api_version, header.correlation_id
    if encode_request(request, version, number, header.client_id)[SIZE.size :] != frame:
        return None
    topic = request.topic_data[0]
    partition = accepted(topic.partition_data[0].index, *_BLANK)
    answer = _encode(version, number, topic.name, topic.topic_id, partition)
    blank = _OFFSETS.pack(*_BLANK)
    if partition.index < 0 or answer.count(blank) != 1:
        return None
    return Shape(
        version,
        topic.name,
        topic.topic_id,
        partition.index,
        request.acks,
        version >= _FLEXIBLE_SINCE,
        answer,
        answer.index(blank),
    )


def _encode(
    version: int, number: int, name: str, topic_id: bytes, partition: PartitionProduceResponse
) -> bytes:
    topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[partition])
    return b"".join(encode_response(ProduceResponse(responses=[topic]), version, number))
