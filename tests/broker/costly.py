"""Requests that ask for much in few bytes: of any API, made from its declaration.

    for form in forms(api, version, known, size_bytes=1 << 16):
        frame = form.frame()

Each form fills one array with as many items as fit, or each string with as many letters as it
takes. What is in the items is nothing, or the same again, or differs, or names what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from odradek.broker.api_table import Api
from odradek.protocol.compiler import encode
from odradek.protocol.footprint import ALLOWANCE_BYTES, RATIO_MAX, TAG_BYTES, item_bytes
from odradek.protocol.frames import encode_request
from odradek.protocol.messages import message_classes
from odradek.protocol.schema import Field, fields_of, info_of
from odradek.protocol.wire import uvarint
from tests.protocol.dense import arrays

# Gives the value of a field of some class that is no struct, for the item of a rank.
Values = Callable[[str, Field, int], Any]
# What exists, by a field's name, or its class's name and its own: items take them in turn.
Known = Mapping[str, Sequence[Any]]

_LONG = 32_767  # the most that a string may have
_INTEGER_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32}
# Known are names that exist, and kinds and codes; made up are names alone.
STYLES = ("empty", "same", "distinct", "made-up", "known", "one-known")
# Of a field of which so few values are known each is a kind of thing, not the name of one.
_KINDS_MAX = 3
# What `make test` has the time for.
MAIN_STYLES = ("empty", "made-up", "known", "one-known")


@dataclass(frozen=True, slots=True)
class Form:
    """A request and what it is made of."""

    api: Api
    version: int
    name: str
    message: Any
    tag_count: int = 0  # of tagged fields at the end, which nobody knows

    def frame(self) -> bytes:
        """Encode it with its header."""
        frame = bytearray(encode_request(self.message, self.version, 7, "sweep"))
        if self.tag_count:
            assert frame.pop() == 0, "a flexible message without tagged fields ends so"
            frame += uvarint(self.tag_count)
            for number in range(self.tag_count):
                frame += uvarint(1_000 + number)
                frame.append(0)
            frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        return bytes(frame)

    def __str__(self) -> str:
        return f"{self.api.name}-v{self.version}-{self.name}"


def forms(
    api: Api, version: int, known: Known, size_bytes: int, styles: Sequence[str] = STYLES
) -> Iterator[Form]:
    """Yield the requests of an API, each of about so many bytes or fewer."""
    cls = message_classes(api.name)[0]
    for style in styles:
        values = styled(style, known)
        yield Form(api, version, style, filled(cls, version, values, 0))
        for path in arrays(cls, version):
            name = ".".join(field.name for field in path)
            yield Form(
                api, version, f"{name}-{style}", crowded(cls, version, path, values, size_bytes)
            )
            if len(path) > 1 and path[0].is_array:
                message = spread(cls, version, path, values, size_bytes)
                yield Form(api, version, f"{name}-spread-{style}", message)
    yield Form(api, version, "long", long_strings(cls, version, known))
    if version in info_of(cls).flexible:
        count = min(size_bytes // 4, (ALLOWANCE_BYTES + RATIO_MAX * size_bytes) // TAG_BYTES // 2)
        empty = filled(cls, version, styled("empty", known), 0)
        yield Form(api, version, "tags", empty, tag_count=count)


def styled(style: str, known: Known) -> Values:
    """Return what fills items in a style."""

    @cache
    def there_is(owner: str, name: str) -> Sequence[Any]:
        there = known.get(f"{owner}.{name}", known.get(name, ()))
        is_unused = style == "distinct" or (style == "made-up" and len(there) > _KINDS_MAX)
        return () if is_unused else there

    def value(owner: str, field: Field, rank: int) -> Any:
        kind = _kind(field)
        if style == "empty":
            return _small(kind)
        if style == "same":
            return _some(kind, 0)
        there = there_is(owner, field.name)
        if there:
            return there[0 if style == "one-known" else rank % len(there)]
        return _some(kind, rank)

    return value


def filled(cls: type, version: int, values: Values, rank: int) -> Any:
    """Return a struct whose arrays are empty."""
    given: dict[str, Any] = {}
    owner = cls.__name__
    for field in _fields(cls, version):
        if field.is_array:
            given[field.name] = []
        elif field.struct is not None:
            given[field.name] = filled(field.struct, version, values, rank)
        else:
            given[field.name] = values(owner, field, rank)
    return cls(**given)


@cache
def _fields(cls: type, version: int) -> list[Field]:
    """Return the fields that a class has in a version."""
    return [field for field in fields_of(cls) if version in field.spec.versions]


def crowded(
    cls: type, version: int, path: Sequence[Field], values: Values, size_bytes: int
) -> Any:
    """Return a message in which one array has as many items as fit, and others on the way one."""

    def made(count: int) -> Any:
        message = holder = filled(cls, version, values, 0)
        for field in path[:-1]:
            inner = filled(field.struct or object, version, values, 0)
            setattr(holder, field.name, [inner] if field.is_array else inner)
            holder = inner
        items = [_item(path[-1], version, values, rank) for rank in range(count)]
        setattr(holder, path[-1].name, items)
        return message

    return made(_count_max(made, version, size_bytes, item_bytes(path[-1], version)))


def spread(
    cls: type, version: int, path: Sequence[Field], values: Values, size_bytes: int
) -> Any:
    """Return a message in which the outermost array has many items, each with one of the inner."""

    def item(at: int, rank: int) -> Any:
        made = _item(path[at], version, values, rank)
        if at + 1 < len(path):
            field = path[at + 1]
            inner = item(at + 1, rank)
            setattr(made, field.name, [inner] if field.is_array else inner)
        return made

    def made(count: int) -> Any:
        message = filled(cls, version, values, 0)
        setattr(message, path[0].name, [item(0, rank) for rank in range(count)])
        return message

    charge = sum(item_bytes(field, version) for field in path)
    return made(_count_max(made, version, size_bytes, charge))


def long_strings(cls: type, version: int, known: Known) -> Any:
    """Return a message of one item in each array, with strings as long as they may be."""

    def value(owner: str, field: Field, rank: int) -> Any:
        kind = _kind(field)
        if kind == "string":
            return "y" * _LONG
        if kind in ("bytes", "records"):
            return b"\x01" * _LONG
        there = known.get(f"{owner}.{field.name}", known.get(field.name))
        return there[0] if there else _some(kind, rank)

    def whole(cls: type) -> Any:
        made = filled(cls, version, value, 0)
        for field in fields_of(cls):
            if field.is_array and version in field.spec.versions:
                item = whole(field.struct) if field.struct else value("", field, 0)
                setattr(made, field.name, [item])
        return made

    return whole(cls)


def _item(field: Field, version: int, values: Values, rank: int) -> Any:
    if field.struct is not None:
        return filled(field.struct, version, values, rank)
    return values("", field, rank)


def _count_max(
    made: Callable[[int], Any], version: int, size_bytes: int, charge: int
) -> int:
    """Return how many items fit into so many bytes, and into the memory that they may take."""
    few, many = (len(encode(made(count), version)) for count in (100, 200))
    size = (many - few) / 100
    count = size_bytes / size
    if charge > RATIO_MAX * size:
        count = min(count, 0.8 * ALLOWANCE_BYTES / (charge - RATIO_MAX * size))
    return max(1, int(count))


def _kind(field: Field) -> str:
    assert field.primitive is not None
    return field.primitive.name


def _small(kind: str) -> Any:
    if kind in _INTEGER_BITS or kind == "bool":
        return 0
    return {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16), "float64": 0.0}[kind]


def _some(kind: str, rank: int) -> Any:
    if kind in _INTEGER_BITS:
        return rank & (1 << _INTEGER_BITS[kind]) - 1
    if kind == "bool":
        return bool(rank % 2)
    if kind == "uuid":
        return (rank + 1).to_bytes(16, "big")
    if kind == "float64":
        return rank + 0.5
    return f"n{rank}" if kind == "string" else b"n%d" % rank
