"""Limits on the work that the batches of one request may cause, on the event loop or in a thread.

A batch of a few kilobytes may unpack to 64 MiB, or to 30 million headers. The event loop serves
all clients, so a check there raises TooLaborious once it would take long; a thread then repeats
the check from the start. Some work is bounded wherever it is done.
"""

from __future__ import annotations

from odradek.protocol.compression import MEMBER_BYTES, Codec
from odradek.protocol.records_plain import NO_LIMIT

# Work on the loop, for all batches of one request together. The costs below are upper bounds,
# measured on one core of 2 GHz: ordinary batches take a tenth of them.
_AT_ONCE_NS = 20_000_000
_ITEMS_AT_ONCE = 10_000
# Records and headers that a thread walks in plain Python: for more it loads the kernels.
_ITEMS_IN_THREAD = 50_000

# A kernel walks records and headers in up to 3 ns a byte; unpacking takes as much.
# Deflate's smallest blocks take 10 ns a packed byte, zstd's 20.
_WALK_NS = 3
_UNPACK_NS = 3
_PACKED_NS = {Codec.GZIP: 10, Codec.SNAPPY: 2, Codec.LZ4: 1, Codec.ZSTD: 20}
# To check one record in plain Python, and name it if it is at fault.
_LOOK_NS = 1_000
# To pack a byte. Gzip at level 9 and lz4 at level 17 took 2,000 ns a byte of the worst data.
_REPACK_NS = {
    Codec.NONE: 1, Codec.GZIP: 2_000, Codec.SNAPPY: 3, Codec.LZ4: 2_000, Codec.ZSTD: 500,
}  # fmt: skip

# Records at fault that a response names. Kafka names all; the response to 1 kB could be 100 MB.
# A response takes 11 ms to fill with this many, and checking this many records takes 8 ms.
RECORD_ERRORS_MAX = 10_000
# Records that a thread checks one by one: 80 ms.
RECORDS_LOOKED_AT_MAX = 100_000
# The unpacked size of all batches of a request: four of the largest.
UNPACKED_BYTES_MAX = 256 * 1024 * 1024


class TooLaborious(Exception):
    """A check that would take too long here: a thread must do it, with the kernels."""


class Allowance:
    """The work still allowed for the batches of one request; the code that serves it owns this.

    Its values are the class's until they change, so that creating one costs next to nothing.
    """

    record_errors = RECORD_ERRORS_MAX
    records_looked_at = RECORDS_LOOKED_AT_MAX
    unpacked_bytes = UNPACKED_BYTES_MAX
    # Records and headers to walk in plain Python.
    items = _ITEMS_AT_ONCE
    _work_ns = _AT_ONCE_NS

    def exhaust(self) -> None:
        """Allow nothing more here: the time is over, however much of it was counted."""
        self._work_ns = self.items = 0

    def extend_to_thread(self) -> None:
        """Allow as much as a thread may do while the kernels are not loaded."""
        self._work_ns, self.items = NO_LIMIT, _ITEMS_IN_THREAD

    def extend_to_kernels(self) -> None:
        """Allow a thread all work: it has loaded the kernels, or none can be loaded."""
        self._work_ns = self.items = NO_LIMIT

    def unpacked_bytes_at_once(self, codec: Codec, packed_bytes: int) -> int:
        """Return the bytes that a batch may unpack to; raises TooLaborious if there are none."""
        left_ns = self._work_ns - _PACKED_NS[codec] * packed_bytes
        if left_ns <= 0:
            raise TooLaborious
        return left_ns // _UNPACK_NS

    def spend_unpacking(self, codec: Codec, packed_bytes: int, size_bytes: int) -> None:
        """Count a batch that was unpacked."""
        self.unpacked_bytes -= size_bytes
        self._spend(_PACKED_NS[codec] * packed_bytes + _UNPACK_NS * size_bytes)

    def spend_walking(self, size_bytes: int) -> None:
        """Count a walk over records by a kernel; raises TooLaborious before it."""
        work_ns = _WALK_NS * size_bytes  # the code of _spend inline: each batch is counted here
        if work_ns > self._work_ns:
            raise TooLaborious
        self._work_ns -= work_ns

    def spend_looking(self, records: int) -> None:
        """Count checks of records one by one; raises TooLaborious before them."""
        self._spend(_LOOK_NS * records)

    def spend_packing(self, codec: Codec, size_bytes: int) -> None:
        """Count the packing of a batch; raises TooLaborious before it."""
        self._spend(_REPACK_NS[codec] * size_bytes)

    def _spend(self, work_ns: int) -> None:
        if work_ns > self._work_ns:
            raise TooLaborious
        self._work_ns -= work_ns


class BriefAllowance(Allowance):
    """The work for a batch that is checked between other things: a tenth of a request's."""

    items = _ITEMS_AT_ONCE // 10
    _work_ns = _AT_ONCE_NS // 10


def unlimited() -> Allowance:
    """Return an allowance without limits on work, for the broker's own batches."""
    allowance = Allowance()
    allowance.extend_to_kernels()
    return allowance


def counted_bytes(size_bytes: int, members: int) -> int:
    """Return the size to count for unpacked data: members take time even if they are empty."""
    return size_bytes + MEMBER_BYTES * (members - 1)
