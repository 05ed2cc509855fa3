"""How much work the batches of one request may be, and where it is done.

A batch of a few kilobytes may unpack to 64 MiB, or to 30 million headers. The event loop serves
everybody, so a check there ends with TooLaborious once it would take long; it is then done again,
from the start, by a thread. Some things are bounded wherever they are done.
"""

from __future__ import annotations

from protocol.compression import MEMBER_BYTES, Codec
from protocol.records_plain import NO_LIMIT

# Work on the loop, for the batches of one request together. The costs below are upper bounds,
# measured on one core of 2 GHz: ordinary batches take a tenth of them.
_AT_ONCE_NS = 20_000_000
_ITEMS_AT_ONCE = 10_000
# Records and headers walked over in plain Python by a thread: the kernels are loaded for more.
_ITEMS_IN_THREAD = 50_000

# Walking over records and headers by a kernel takes up to 3 ns a byte, unpacking as much.
# Deflate's smallest blocks take 10 ns a byte of what is packed, zstd's 20.
_WALK_NS = 3
_UNPACK_NS = 3
_PACKED_NS = {Codec.GZIP: 10, Codec.SNAPPY: 2, Codec.LZ4: 1, Codec.ZSTD: 20}
# Looking at one record in plain Python, to name it if it is at fault.
_LOOK_NS = 1_000
# Packing a byte. Gzip at level 9 and lz4 at level 17 took 2,000 ns a byte of the worst data.
_REPACK_NS = {
    Codec.NONE: 1, Codec.GZIP: 2_000, Codec.SNAPPY: 3, Codec.LZ4: 2_000, Codec.ZSTD: 500,
}  # fmt: skip

# Records at fault that a response names. Kafka names all; the response to 1 kB could be 100 MB.
# So many take 11 ms to put into a response, and as many records take 8 ms to look at.
RECORD_ERRORS_MAX = 10_000
# Records that a thread looks at one by one: 80 ms.
RECORDS_LOOKED_AT_MAX = 100_000
# What batches unpack to: four of the largest.
UNPACKED_BYTES_MAX = 256 * 1024 * 1024


class TooLaborious(Exception):
    """A check that would take too long here: a thread has to do it, and by the kernels."""


class Allowance:
    """What may still be spent on the batches of one request; whoever serves it owns this.

    Its values are the class's until they change: to make one takes next to nothing.
    """

    record_errors = RECORD_ERRORS_MAX
    records_looked_at = RECORDS_LOOKED_AT_MAX
    unpacked_bytes = UNPACKED_BYTES_MAX
    # Records and headers that are walked over in plain Python.
    items = _ITEMS_AT_ONCE
    _work_ns = _AT_ONCE_NS

    def exhaust(self) -> None:
        """Allow nothing more here: the time is over, whatever was counted of it."""
        self._work_ns = self.items = 0

    def extend_to_thread(self) -> None:
        """Allow as much as a thread may do while the kernels are not loaded."""
        self._work_ns, self.items = NO_LIMIT, _ITEMS_IN_THREAD

    def extend_to_kernels(self) -> None:
        """Allow a thread all work: it has loaded the kernels, or there are none to be had."""
        self._work_ns = self.items = NO_LIMIT

    def unpacked_bytes_at_once(self, codec: Codec, packed_bytes: int) -> int:
        """Return how much a batch may unpack to; raises TooLaborious if that is nothing."""
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
        work_ns = _WALK_NS * size_bytes  # as _spend does: each batch comes by here
        if work_ns > self._work_ns:
            raise TooLaborious
        self._work_ns -= work_ns

    def spend_looking(self, records: int) -> None:
        """Count looks at records one by one; raises TooLaborious before them."""
        self._spend(_LOOK_NS * records)

    def spend_packing(self, codec: Codec, size_bytes: int) -> None:
        """Count the packing of a batch; raises TooLaborious before it."""
        self._spend(_REPACK_NS[codec] * size_bytes)

    def _spend(self, work_ns: int) -> None:
        if work_ns > self._work_ns:
            raise TooLaborious
        self._work_ns -= work_ns


def unlimited() -> Allowance:
    """Return what the broker's own batches may cost."""
    allowance = Allowance()
    allowance.extend_to_kernels()
    return allowance


def counted_bytes(size_bytes: int, members: int) -> int:
    """Return what unpacked data counts for: members take time even if they hold nothing."""
    return size_bytes + MEMBER_BYTES * (members - 1)
