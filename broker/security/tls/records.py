"""Finds the borders of TLS records in what comes, so that only so many are decrypted in one go.

    type, version, length (2 bytes), as many bytes of content

OpenSSL takes 20 microseconds for a record of 27 bytes that asks for new keys (RFC 8446 section
4.6.3), and takes all that it has before it returns: 180 ms for one reading of the socket.
"""

from __future__ import annotations

_HEADER_BYTES = 5


class RecordBorders:
    """Follows the records of one connection through all pieces in which they come."""

    def __init__(self) -> None:
        self._left_bytes = 0  # of the record that has begun
        self._head = b""  # of one whose header has not come whole

    def end_of(self, data: memoryview, count: int) -> int:
        """Return where, in what comes next, so many records have begun and the last one ends.

        That is the end of the data when they are fewer. What is behind comes next again.
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
