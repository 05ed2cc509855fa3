"""How much memory the values of a request may take, and the charge for each of them.

A well-formed request of tiny structs would decode to fifty times its size. So each array is
charged for its items before they are created, at a cost that is known once the decoder is
compiled, and a request that exceeds the frame's budget is refused:

    budget = ALLOWANCE_BYTES + RATIO_MAX * size of the frame

The charge is an upper bound, except for the contents of strings, which take up to four bytes
where the wire has one. Sensible requests of any size stay within the budget: a partition takes
ten to fifteen times its bytes on the wire. Only topics whose names have no more than three
characters take more, and the allowance is enough for 45,000 of them.

Tagged fields are also charged, though unknown ones are not kept: an empty one is two bytes on
the wire, and skipping a frame full of them takes long.
"""

from __future__ import annotations

import sys

from odradek.protocol.schema import Field, fields_of

ALLOWANCE_BYTES = 1024 * 1024
RATIO_MAX = 20
# The charge for a tagged field, known or not. One in each partition stays within the budget.
TAG_BYTES = 256
# For bytes that this program has written itself.
UNLIMITED = 1 << 62

# Measured on CPython 3.11 to 3.13, and rounded up to the 16 bytes of its allocator.
_SLOT_BYTES = 10  # per item of a list, with the room that lists grow by
_LIST_BYTES = 64
_GARBAGE_COLLECTION_BYTES = 16
_VALUE_BYTES = {
    "int8": 0,  # every value has one shared object
    "bool": 0,
    "int16": 32,
    "uint16": 32,
    "int32": 32,
    "uint32": 32,
    "int64": 32,
    "float64": 32,
    "uuid": 64,
    "string": 64,
    "bytes": 48,
    "records": sys.getsizeof(memoryview(b"")) + 16,
}


def memory_max(frame_size: int) -> int:
    """Return how much memory the values in a frame may take."""
    return ALLOWANCE_BYTES + RATIO_MAX * frame_size


def item_bytes(field: Field, version: int) -> int:
    """Return the charge for each item of an array; arrays inside are charged separately."""
    if field.struct is not None:
        return _SLOT_BYTES + struct_bytes(field.struct, version)
    assert field.primitive is not None
    return _SLOT_BYTES + _VALUE_BYTES[field.primitive.name]


def has_arrays(cls: type) -> bool:
    """Return whether a struct, or a struct inside it, has an array."""
    return any(
        field.is_array or (field.struct is not None and has_arrays(field.struct))
        for field in fields_of(cls)
    )


def struct_bytes(cls: type, version: int) -> int:
    """Return the memory of a struct and its fields, with those that the version lacks."""
    size = cls.__basicsize__ + _GARBAGE_COLLECTION_BYTES
    return size + sum(_field_bytes(field, version) for field in fields_of(cls))


def _field_bytes(field: Field, version: int) -> int:
    is_present = version in field.spec.versions
    if not is_present and field.default() is None:
        return 0
    if field.is_array:
        return _LIST_BYTES
    if field.struct is not None:
        return struct_bytes(field.struct, version)
    assert field.primitive is not None
    return _VALUE_BYTES[field.primitive.name] if is_present else 0
