"""The offset map: for each key of a log's dirty section, the offset of its latest record.

It is built for one run, as large as that run's records need, and then given back. A key is kept
as a hash, in a slot of 16 bytes whose layout is drawn in cleaner/kernels.py; with at most 0.8 of
the slots in use (0.9 when the configured ceiling binds) a key takes 20 bytes. Kafka's takes 24
bytes a slot, allocated whole whether needed or not.

Two keys of one hash would silently lose a record, so the hash has to make that as good as
impossible, whatever keys somebody chooses. It is a polynomial, evaluated modulo the prime
P = 2^61 - 1 at a point that is drawn anew for every run and never leaves it, and a second one at
a second point:

    h(key) = (n + 1) x^(w+1) + k1 x^w + ... + kw x      n: the key's length, k: its 7-byte words

Two different keys give two different polynomials of a degree of at most w + 1, so that any
given difference between their hashes has a chance of at most (w + 1) / P to come out, over the
choice of the point, and ((w + 1) / P)^2 for both hashes. This is a theorem about every pair of
keys, not a hope about typical ones (Carter and Wegman, 1979). Of the 122 bits a slot stores 96;
the other 26 say where the key's search begins, which separates keys as well, for a search ends
at the next free slot. With searches of 100 slots (13 are usual) the chance that any two of N
keys are taken for each other is below

    200 N max(N / 16, 2^26) (w + 1)^2 / 2^122

which is 4 * 10^-17 for 10^9 keys of 16 bytes, and below 10^-12 for as many keys of 4 KB.

The point is secret because an attacker who knew it could solve for keys that collide. Speed:
two multiplications per word and hash, and the two hashes overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cleaner import kernels
from protocol.records import Bytes, Table

PRIME = 2**61 - 1
SLOT_BYTES = 16
# Fuller maps search longer: 13 slots for an absent key at 0.8, 50 at 0.9.
LOAD_FACTOR = 0.8
_SLOTS_MIN = 64
_SLOTS_MAX = 2**32 - 1
_WORD_BYTES = 7
_STORED_BITS = 48
_STORED_MASK = 2**_STORED_BITS - 1
_UINT64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class HashKey:
    """The secret points of one run's hashes."""

    point_a: int
    point_b: int

    @classmethod
    def draw(cls, random_below: Callable[[int], int]) -> HashKey:
        """Draw the points; `random_below` must be as secrets.randbelow is."""
        return cls(random_below(PRIME), random_below(PRIME))


@dataclass(frozen=True, slots=True)
class Added:
    """What became of a table of batches."""

    status: int  # kernels.WHOLE, FULL or BAD_RECORD
    row: int  # of the first batch that is not, or not wholly, in the map


class OffsetMap:
    """Keys and their latest offsets; owned by the run that fills it."""

    def __init__(
        self,
        record_count: int,
        *,
        bytes_max: int,
        load_factor_max: float,
        start_offset: int,
        hash_key: HashKey,
    ) -> None:
        """Make a map for the keys of so many records, within a ceiling of memory."""
        wanted = int(record_count / LOAD_FACTOR) + 1
        ceiling = max(bytes_max // SLOT_BYTES, _SLOTS_MIN)
        slots = min(max(wanted, _SLOTS_MIN), ceiling, _SLOTS_MAX)
        # Pages come from the system zeroed, and only those that are touched.
        self._table = np.zeros(2 * slots, np.uint64)
        # A search ends at a free slot, so that there must always be one.
        self._size_max = min(max(record_count, 1), int(slots * load_factor_max), slots - 1)
        self._size = 0
        self._key = hash_key
        self.start_offset = start_offset
        self.latest_offset = start_offset - 1

    def __len__(self) -> int:
        return self._size

    @property
    def memory_bytes(self) -> int:
        """The size of the slots."""
        return self._table.nbytes

    @property
    def utilization(self) -> float:
        """The share of the slots in use."""
        return self._size / (len(self._table) // 2)

    def add(self, data: Bytes, batches: Table, verdicts: Bytes) -> Added:
        """Note the latest offset of each key in batches that have no verdict against them."""
        status, row, self._size = kernels.index_records(
            data,
            batches,
            len(batches),
            verdicts,
            self._table,
            self._size,
            self._size_max,
            self.start_offset,
            self._key.point_a,
            self._key.point_b,
        )
        return Added(status, row)

    def judge(
        self, data: Bytes, batches: Table, verdicts: Bytes, now_ms: int, positions: Table,
        fates: Bytes,
    ) -> tuple[int, int, int, int, int]:  # fmt: skip
        """Decide the fate of each record: kernels.judge_records with this map."""
        return kernels.judge_records(
            data,
            batches,
            len(batches),
            verdicts,
            self._table,
            self.start_offset,
            self.latest_offset,
            now_ms,
            self._key.point_a,
            self._key.point_b,
            positions,
            fates,
        )

    def get(self, key: bytes) -> int | None:
        """Return the latest offset of a key, None when the map has not seen it."""
        word_0, word_1, home = hash_key_plain(key, self._key)
        slot = home * (len(self._table) // 2) >> 32
        relative = kernels.find_relative(self._table, word_0, word_1, slot)
        return self.start_offset + relative - 1 if relative else None


def hash_key_plain(key: bytes, points: HashKey) -> tuple[int, int, int]:
    """Hash a key as kernels.hash_key does: word 0, word 1 without an offset, its 32-bit home."""
    a, b = (_evaluate(key, point) for point in (points.point_a, points.point_b))
    stored_a, stored_b = a & _STORED_MASK, b & _STORED_MASK
    rest = (a >> _STORED_BITS) << 13 | b >> _STORED_BITS
    word_0 = stored_a << 16 | stored_b >> 32
    word_1 = stored_b << 32 & _UINT64
    mixture = (word_0 ^ (word_1 + (word_0 >> 29))) * 0x9E3779B97F4A7C15 & _UINT64
    mixture = (mixture ^ mixture >> 32) * 0xD6E8FEB86659FD93 & _UINT64
    return word_0, word_1, (rest << 6) + (mixture >> 32) & 0xFFFFFFFF


def _evaluate(key: bytes, point: int) -> int:
    value = len(key) + 1
    for at in range(0, len(key), _WORD_BYTES):
        word = int.from_bytes(key[at : at + _WORD_BYTES], "little")
        value = (value * point + word) % PRIME
    return value * point % PRIME
