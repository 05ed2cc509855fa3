"""The offset map: finds obsolete records among a log's dirty records while they are read.

It is built for one run, as large as that run's records need, and then freed. A key is kept
as a hash (cleaner/passes/hashing.py), in a slot of 16 bytes whose layout is drawn in
cleaner/passes/mapping.py; with at most 0.8 of the slots in use (0.9 when the configured ceiling
binds) a key takes 20 bytes. Kafka's takes 24 bytes a slot, allocated whole whether needed or not.

Kafka keeps the latest offset of a key, reads the log again, and looks up every record. Here each
record has an ordinal, and the map marks the record that a later one of its key makes obsolete:
the dirty section needs no second look-up, only older segments do.
"""

from __future__ import annotations

import numpy as np

from odradek.cleaner.passes import judging, mapping
from odradek.cleaner.passes.hashing import HashKey, hash_key_plain
from odradek.cleaner.passes.mapping import SPILL_COLUMNS, SpillRows
from odradek.dataclass import dataclass
from odradek.protocol.intrinsics import Words
from odradek.protocol.kernel import Bytes, Table

SLOT_BYTES = 16
# Fuller maps search longer: 13 slots for an absent key at 0.8, 50 at 0.9.
LOAD_FACTOR = 0.8
NO_ROWS: SpillRows = np.empty((0, SPILL_COLUMNS), np.uint32)
NO_HASHES: Words = np.empty(0, np.uint64)
_SLOTS_MIN = 64
_SLOTS_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Added:
    """The result of adding a table of batches."""

    status: int  # batch_scan.WHOLE, FULL or BAD_RECORD
    row: int  # of the first batch that is not completely in the map
    spilled: int  # rows that did not fit
    keyless: int  # records without a key
    hashed: int  # hashes for filters


class Obsolete:
    """A bit for each numbered record: set when the record must go."""

    def __init__(self, record_count: int) -> None:
        self.bits: Bytes = np.zeros(record_count // 8 + 1, np.uint8)

    def make_room(self, record_count: int) -> None:
        """Make room for the bits of this many records."""
        wanted = record_count // 8 + 1
        if wanted > len(self.bits):
            grown = np.zeros(max(wanted, len(self.bits) * 5 // 4), np.uint8)
            grown[: len(self.bits)] = self.bits
            self.bits = grown

    def __contains__(self, ordinal: int) -> bool:
        return bool(self.bits[ordinal >> 3] >> (ordinal & 7) & 1)


class OffsetMap:
    """Keys and their latest records; owned by the run that fills it."""

    def __init__(
        self,
        record_count: int,
        *,
        bytes_max: int,
        load_factor_max: float,
        hash_key: HashKey,
        filter_point: int = 0,
    ) -> None:
        """Create a map for the keys of `record_count` records, within a limit on memory."""
        wanted = int(record_count / LOAD_FACTOR) + 1
        ceiling = max(bytes_max // SLOT_BYTES, _SLOTS_MIN)
        slots = min(max(wanted, _SLOTS_MIN), ceiling, _SLOTS_MAX)
        # The system provides zeroed pages, and only those that are touched.
        self._table = np.zeros(2 * slots, np.uint64)
        self._slots = slots
        # A search ends at a free slot, so at least one must always be free.
        self._size_max = min(max(record_count, 1), int(slots * load_factor_max), slots - 1)
        # When keys may be spilled, a less full map finds faster that a key is absent.
        self._spilling_size = min(self._size_max, int(slots * LOAD_FACTOR))
        self._size = 0
        self._key = hash_key
        points = (hash_key.point_a, hash_key.point_b, filter_point)
        self._points: Words = np.array(points, np.uint64)
        self.obsolete = Obsolete(record_count)

    def __len__(self) -> int:
        return self._size

    @property
    def memory_bytes(self) -> int:
        """The memory of the slots, also after they were freed."""
        return self._slots * SLOT_BYTES

    @property
    def utilization(self) -> float:
        """The share of the slots that hold a key."""
        return self._size / self._slots

    def entries(self) -> tuple[Words, Words, Table]:
        """Return the two parts of the keys' hashes, and the ordinals of their latest records.

        The parts have 64 and 32 bits.
        """
        slots = self._table.reshape(-1, 2)
        slots = slots[slots[:, 1] != 0]
        ordinals = (slots[:, 1] & np.uint64(0xFFFFFFFF)).astype(np.int64) - 1
        return slots[:, 0], slots[:, 1] >> np.uint64(32), ordinals

    def may_fill_up(self, record_count: int) -> bool:
        """Return whether the keys of this many more records might not fit."""
        return self._size + record_count > self._spilling_size

    def add(
        self,
        data: Bytes,
        batches: Table,
        verdicts: Bytes,
        ordinals: Table,
        *,
        start_offset: int = 0,
        spill: SpillRows = NO_ROWS,
        filter_hashes: Words = NO_HASHES,
    ) -> Added:
        """Add the keys of the batches without a verdict: mapping.index_records."""
        status, row, self._size, spilled, keyless, hashed = mapping.index_records(
            data,
            batches,
            len(batches),
            verdicts,
            ordinals,
            start_offset,
            self._table,
            self._size,
            self._spilling_size if len(spill) else self._size_max,
            self._points,
            self.obsolete.bits,
            spill,
            filter_hashes,
        )
        return Added(status, row, spilled, keyless, hashed)

    def look_up(
        self,
        data: Bytes,
        batches: Table,
        verdicts: Bytes,
        ordinals: Table,
        end_offset: int,
        spill: SpillRows,
    ) -> Added:
        """Mark obsolete records, all older than the map's records: judging.look_up_records."""
        status, row, spilled, keyless = judging.look_up_records(
            data,
            batches,
            len(batches),
            verdicts,
            ordinals,
            end_offset,
            self._table,
            self._points,
            self.obsolete.bits,
            spill,
        )
        return Added(status, row, spilled, keyless, 0)

    def give_back(self) -> None:
        """Free the slots; the marks stay."""
        self._table = np.empty(0, np.uint64)

    def judge(
        self,
        data: Bytes,
        batches: Table,
        verdicts: Bytes,
        ordinals: Table,
        now_ms: int,
        positions: Table,
        fates: Bytes,
    ) -> tuple[int, int, int, int, int]:
        """Decide the fate of each record: judging.judge_records with this map."""
        return judging.judge_records(
            data,
            batches,
            len(batches),
            verdicts,
            ordinals,
            self.obsolete.bits,
            self._table if self._size else NO_HASHES,
            self._points,
            now_ms,
            positions,
            fates,
        )

    def get(self, key: bytes) -> int | None:
        """Return the ordinal of a key's latest record, None when the map lacks the key."""
        word_0, word_1, home = hash_key_plain(key, self._key)
        slot = home * self._slots >> 32
        ordinal = mapping.find_ordinal(self._table, word_0, word_1, slot)
        return ordinal if ordinal >= 0 else None
