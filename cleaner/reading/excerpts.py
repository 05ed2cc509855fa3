"""Excerpts of records, to be shown: keys, values and headers of any size, cut to bounds.

A stored batch of some kilobytes may unpack to a value of 60 MiB, or to a record with millions
of headers. The excerpt of a record is bounded, and says how much was left out.
"""

from __future__ import annotations

from odradek.dataclass import dataclass
from odradek.protocol.records_plain import locate_headers


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits on the parts of a record that an excerpt keeps."""

    key_bytes_max: int
    value_bytes_max: int
    headers_max: int
    header_bytes_max: int  # of a header's key, and of its value


@dataclass(frozen=True, slots=True)
class Cut:
    """The first bytes of some data, or all of them."""

    data: bytes
    size_bytes: int  # of all of them

    @property
    def is_cut(self) -> bool:
        """Whether bytes were left out."""
        return len(self.data) < self.size_bytes


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A record, cut to bounds. Its timestamp is in ms; a null value makes it a tombstone."""

    offset: int
    timestamp: int
    key: Cut | None
    value: Cut | None
    headers: tuple[tuple[Cut, Cut | None], ...]
    headers_left_out: int

    @property
    def size_bytes(self) -> int:
        """The bytes that are kept."""
        parts = [self.key, self.value, *(one for header in self.headers for one in header)]
        return sum(len(one.data) for one in parts if one is not None)


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """A record's place in a section, which stays in memory as long as the place does.

    Lengths are -1 for null. `headers_position` is -1 in a format without headers.
    """

    section: bytes
    offset: int
    timestamp: int
    key_position: int
    key_length: int
    value_position: int
    value_length: int
    headers_position: int
    end: int

    @property
    def key(self) -> bytes | None:
        """The key, copied."""
        if self.key_length < 0:
            return None
        return self.section[self.key_position : self.key_position + self.key_length]

    def key_holds(self, octets: bytes) -> bool:
        """Return whether the key contains some bytes; a null key contains none."""
        start = self.key_position
        return self.key_length >= 0 and holds(
            self.section, octets, start, start + self.key_length
        )

    def value_holds(self, octets: bytes) -> bool:
        """Return whether the value contains some bytes; a null value contains none."""
        start = self.value_position
        return self.value_length >= 0 and holds(
            self.section, octets, start, start + self.value_length
        )

    def excerpt(self, bounds: Bounds) -> Excerpt:
        """Copy the parts within the bounds. Raises InvalidRecord for malformed headers."""
        section, header_max = self.section, bounds.header_bytes_max
        count, headers = 0, list[tuple[int, int, int, int]]()
        if self.headers_position >= 0:
            count, headers = locate_headers(
                section, self.headers_position, self.end, bounds.headers_max
            )
        return Excerpt(
            self.offset,
            self.timestamp,
            _cut(section, self.key_position, self.key_length, bounds.key_bytes_max),
            _cut(section, self.value_position, self.value_length, bounds.value_bytes_max),
            tuple(
                (
                    Cut(section[key_at : key_at + min(key_length, header_max)], key_length),
                    _cut(section, value_at, value_length, header_max),
                )
                for key_at, key_length, value_at, value_length in headers
            ),
            count - len(headers),
        )


# Python's search holds the interpreter's lock, and reads about 2 GB/s: a window takes half a
# millisecond, after which other threads may run.
_WINDOW_BYTES = 1 << 20


def holds(section: bytes, octets: bytes, start: int, end: int) -> bool:
    """Return whether bytes occur between two positions, letting other threads run in between."""
    step = _WINDOW_BYTES + len(octets)
    while end - start > step:
        if section.find(octets, start, start + step) >= 0:
            return True
        start += _WINDOW_BYTES
    return section.find(octets, start, end) >= 0


def _cut(section: bytes, position: int, length: int, bytes_max: int) -> Cut | None:
    if length < 0:
        return None
    return Cut(section[position : position + min(length, bytes_max)], length)
