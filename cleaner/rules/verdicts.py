"""The verdicts on batches that the cleaner's kernels work with, and the fates of records.

The kernels work on the tables of batches that protocol/batch_scan.py fills. Their rules are
written in plain Python in cleaner/rules/keep.py, and tests ensure that the two agree. All kernels
release the interpreter's lock and never read outside their buffer.
"""

from __future__ import annotations

# A verdict on a batch, in bits; 0 for a batch whose records are judged one by one.
DISCARD = 1  # all its records go
KEEP = 2  # all its records stay: it is a control batch, or lies beyond the indexed offsets
RETAIN = 4  # at least its header must stay
MARKER = 8  # no batch of the transaction that it ends is left: stamp it with a delete horizon
EXPIRED = 16  # its tombstones go

# The fate of a record.
DROPPED, KEPT, KEPT_TOMBSTONE = range(3)

# In place of an ordinal: the batch's records were not indexed, and are looked up in the map.
NO_ORDINAL = -1
