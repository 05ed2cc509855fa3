"""Finds the borders of TLS records in received bytes, to bound the records decrypted in one call.

    type, version, length (2 bytes), as many bytes of content

OpenSSL takes 20 microseconds for a record of 27 bytes that asks for new keys (RFC 8446 section
4.6.3), and reads all records that it has before it returns: 180 ms for one reading of the socket.
"""

from __future__ import annotations

_HEADER_BYTES = 5


class RecordBorders:
    """Follows the records of one connection through the pieces in which they arrive."""

    def __init__(self) -> None:
        self._left_bytes = 0  # the missing bytes of the record that has begun
        self._head = b""  # the beginning of an incomplete header

    def end_of(self, data: memoryview, count: int) -> int:
        """Return the end of the last of `count` records that begin in the next bytes.

        Returns the end of the data when it has fewer. Pass the bytes behind that end again.
        """
        size, position = len(data), self._left_bytes
        if self._head:
            missing = _HEADER_BYTES - len(self._head)
            self._head += data[:missing]
            if len(self._head) < _HEADER_BYTES:
                return size
            position = missing + int.from_bytes(self._head[3:], "big")
            self._head = b""
        while count and position + _HEADER_BYTES <= size:
            position += _HEADER_BYTES + (data[position + 3] << 8 | data[position + 4])
            count -= 1
        if not count and position < size:
            self._left_bytes = 0
            return position
        if position < size:
            self._head = bytes(data[position:])
        self._left_bytes = max(0, position - size)
        return size
