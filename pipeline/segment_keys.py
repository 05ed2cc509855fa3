"""Reads the records of some keys; segments that lack them are left out, by filters of their keys.

Cleaners write a filter of the keys beside each segment. A segment without one, or with one that is
damaged or gone, is read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from odradek.cleaner.passes.key_filter import may_have_key
from odradek.dataclass import dataclass
from odradek.pipeline.segment_beside import KEYS, read_beside
from odradek.pipeline.segment_files import Segment


def may_have(segment: Segment, keys: Collection[bytes]) -> bool:
    """Return whether a segment may have a record with one of some keys."""
    found = read_beside(segment, KEYS)
    if found is None:
        return True
    return may_have_key(found, segment.base_offset, segment.size_bytes, keys, segment.path)


@dataclass(frozen=True, slots=True)
class KeyedSchema:
    """The columns to read for a selection by keys, and those that are wanted."""

    schema: pa.Schema
    names: Sequence[str]

    def select(self, batch: pa.RecordBatch, keys: Collection[bytes]) -> pa.RecordBatch:
        """Return the wanted columns of the rows with one of the keys, and of damage."""
        chosen = pc.is_in(batch.column("key"), value_set=pa.array(sorted(keys), pa.binary()))
        if "damage" in self.names:
            chosen = pc.or_(chosen, pc.is_valid(batch.column("damage")))
        return batch.filter(chosen).select(self.names)


def with_keys(schema: pa.Schema) -> KeyedSchema:
    """Return the columns of a schema, with the key if it lacks that."""
    key = [] if "key" in schema.names else [pa.field("key", pa.binary())]
    return KeyedSchema(pa.schema([*schema, *key]), schema.names)
