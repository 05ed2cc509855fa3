"""The verdicts that the cleaner's kernels pass on batches, and the fates of records.

The kernels work on the tables of batches that protocol/batch_scan.py fills. What they decide is
stated in plain Python in cleaner/rules/keep.py, and tests hold the two together. All of them
release the interpreter's lock and never read outside their buffer.
"""

from __future__ import annotations

# A verdict on a batch, in bits; 0 for one whose records are judged one by one.
DISCARD = 1  # all its records go
KEEP = 2  # all its records stay: it is a control batch, or lies beyond what was indexed
RETAIN = 4  # something of it must stay, if only its header
MARKER = 8  # it ends a transaction of which nothing is left: stamp it with a delete horizon
EXPIRED = 16  # its tombstones go

# The fate of a record.
DROPPED, KEPT, KEPT_TOMBSTONE = range(3)

# Instead of an ordinal: the batch's records were not indexed, and are looked up in the map.
NO_ORDINAL = -1
