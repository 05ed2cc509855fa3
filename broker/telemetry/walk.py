"""Walks through Protocol Buffers field by field, without parsing whole messages.

For every two bytes of a malicious payload, a parser creates an object of some hundred bytes, all
at once. This walk creates only the requested fields, and it counts the fields.

    message    any number of: tag, then the field
    tag        varint    the field's number << 3 | its kind
    field      a varint (kind 0), 8 bytes (1), 4 bytes (5), or a varint and as many bytes (2)

Source: the encoding of Protocol Buffers (protobuf.dev).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10

Span: TypeAlias = tuple[int, int]
"""The start and the end of some bytes."""


class InvalidPayload(Exception):
    """Bytes that are not metrics."""


class PayloadTooLarge(Exception):
    """Metrics that are too large once decompressed, or too many."""


class Walk:
    """A walk through one payload, over at most `fields_max` fields."""

    def __init__(self, data: bytes, fields_max: int) -> None:
        self.data = data
        self._fields_max = self._fields_left = fields_max

    @property
    def all(self) -> Span:
        """The payload as a whole."""
        return 0, len(self.data)

    def parts(self, number: int, within: Span) -> Iterator[Span]:
        """Find the fields of a number that hold bytes. Raises InvalidPayload, PayloadTooLarge."""
        at, end = within
        while at < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise PayloadTooLarge(f"more than {self._fields_max} fields")
            tag, at = self._varint(at, end)
            kind, start = tag & 7, at
            if kind == _BYTES:
                size, start = self._varint(at, end)
                at = start + size
            elif kind == _VARINT:
                _, at = self._varint(at, end)
            elif kind in (_FIXED_32, _FIXED_64):
                at += 4 if kind == _FIXED_32 else 8
            else:
                raise InvalidPayload(f"a field of kind {kind}")
            if at > end:
                raise InvalidPayload("a field past the end of its message")
            if kind == _BYTES and tag >> 3 == number:
                yield start, at

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            if at >= end:
                break
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise InvalidPayload("a malformed varint")
