"""Requests that are nothing but items: what takes the most memory and work for its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from odradek.protocol.schema import Field, fields_of

Item = Callable[[Field, int], Any]


def tiny(field: Field, version: int) -> Any:
    """Return the item of an array that has the fewest bytes on the wire."""
    return filled(field.struct, version) if field.struct else _ZEROS[_kind(field)]


def large(field: Field, version: int) -> Any:
    """Return an item whose numbers are objects of their own, and whose strings are not shared."""
    if field.struct is None:
        return _LARGE[_kind(field)]
    return filled(field.struct, version, _LARGE)


def _kind(field: Field) -> str:
    assert field.primitive is not None
    return field.primitive.name


_ZEROS = {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16)} | dict.fromkeys(
    ("bool", "int8", "int16", "int32", "int64", "uint16", "uint32", "float64"), 0
)
_LARGE = _ZEROS | {
    "string": "ab", "bytes": b"ab", "records": b"a", "uuid": bytes(range(16)), "int16": 12_345,
    "int32": 2**30 - 1, "int64": 2**59, "uint16": 54_321, "uint32": 2**30 - 1, "float64": 0.5,
}  # fmt: skip


def filled(cls: type, version: int, values: dict[str, Any] = _ZEROS) -> Any:
    given: dict[str, Any] = {}
    for field in fields_of(cls):
        if version not in field.spec.versions:
            continue
        if field.is_array:
            given[field.name] = []
        elif field.struct is not None:
            given[field.name] = filled(field.struct, version, values)
        else:
            given[field.name] = values[_kind(field)]
    return cls(**given)


def arrays(cls: type, version: int) -> Iterator[list[Field]]:
    """Yield the path to every array that a message has in a version."""
    for field in fields_of(cls):
        if version not in field.spec.versions:
            continue
        if field.is_array:
            yield [field]
        if field.struct is not None:
            yield from ([field, *path] for path in arrays(field.struct, version))


def with_items(
    cls: type, version: int, path: list[Field], item: Item, count: int
) -> Any:
    """Return a message in which one array has many items."""
    message = holder = filled(cls, version)
    for field in path[:-1]:
        inner = filled(field.struct or object, version)
        setattr(holder, field.name, [inner] if field.is_array else inner)
        holder = inner
    setattr(holder, path[-1].name, [item(path[-1], version)] * count)
    return message
