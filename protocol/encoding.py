"""Emits the source of encode functions: `encode(o, w)` passes the bytes of a value to `w`.

`w` is the `extend` of an Output, which refers to records and does not copy them.
"""

from __future__ import annotations

import struct

from odradek.protocol.emitter import Emitter, fixed_format, runs
from odradek.protocol.pacing import PACED_MIN
from odradek.protocol.schema import Field, fields_of

Chunk = bytes | bytearray | memoryview


class Output(bytearray):
    """An encoded message: one buffer, and the records that belong between its parts."""

    __slots__ = ("_apart",)

    def __init__(self) -> None:
        self._apart: list[tuple[int, Chunk]] = []

    def put_apart(self, data: Chunk) -> None:
        """Insert bytes at this point without a copy."""
        self._apart.append((len(self), data))

    def size_bytes(self) -> int:
        """Return the size of the whole message."""
        # Parts are bytes, or views of bytes.
        return len(self) + sum(len(data) for _, data in self._apart) if self._apart else len(self)

    def chunks(self) -> list[Chunk]:
        """Return the whole message in order; the buffer must not grow afterwards."""
        if not self._apart:
            return [self]
        view = memoryview(self)
        parts: list[Chunk] = []
        start = 0
        for position, data in self._apart:
            parts += view[start:position], data
            start = position
        if start < len(self):
            parts.append(view[start:])
        return parts


def emit_encode(e: Emitter) -> None:
    """Emit the encode function of the emitter's class and version."""
    e.put(0, "def encode(o, w):")
    for run in runs(e.plain):
        if fixed_format(run[0]):
            _encode_fixed(e, run)
        else:
            _encode_value(e, run[0], 1, "w")
    if e.flexible:
        _encode_tagged(e)
    elif not e.plain:
        e.put(1, "pass")


def _encode_fixed(e: Emitter, run: list[Field]) -> None:
    formats = "".join(fixed_format(field) or "" for field in run)
    values = ", ".join(f"o.{field.name}" for field in run)
    e.put(1, f"w({e.packer(formats, 'pack')}({values}))")


def _encode_value(e: Emitter, field: Field, depth: int, w: str) -> None:
    fixed = fixed_format(field)
    if fixed:
        e.put(depth, f"{w}({e.packer(fixed, 'pack')}(o.{field.name}))")
        return
    nullable = field.is_nullable(e.version)
    if field.struct is not None and not field.is_array:
        _encode_struct(e, field, depth, w, nullable)
        return
    e.put(depth, f"v = o.{field.name}")
    e.put(depth, "if v is None:")
    if nullable:
        is_string = field.primitive is not None and field.primitive.name == "string"
        classic = r"b'\xff\xff'" if is_string and not field.is_array else r"b'\xff\xff\xff\xff'"
        null = r"b'\x00'" if e.flexible else classic
        e.put(depth + 1, f"{w}({null})")
    else:
        e.put(depth + 1, f"raise null_error({field.name!r})")
    e.put(depth, "else:")
    if field.is_array:
        _encode_array(e, field, depth + 1, w)
    else:
        assert field.primitive is not None
        _encode_octets(e, field.primitive.name, depth + 1, w)


def _encode_length(e: Emitter, is_string: bool, count: str, depth: int, w: str) -> None:
    if e.flexible:
        e.put(depth, f"{w}(uvarint({count} + 1))")
    else:
        e.put(depth, f"{w}({e.packer('h' if is_string else 'i', 'pack')}({count}))")


def _encode_octets(e: Emitter, kind: str, depth: int, w: str) -> None:
    if kind == "string":
        e.put(depth, "v = v.encode()")
    size = "memoryview(v).nbytes" if kind == "records" else "len(v)"
    _encode_length(e, kind == "string", size, depth, w)
    e.put(depth, f"{w}.__self__.put_apart(v)" if kind == "records" else f"{w}(v)")


def _encode_struct(e: Emitter, field: Field, depth: int, w: str, nullable: bool) -> None:
    assert field.struct is not None
    inner = e.name(f"encode_{field.name}", e.nested(field.struct))
    if not nullable:
        e.put(depth, f"{inner}(o.{field.name}, {w})")
        return
    e.put(depth, f"if o.{field.name} is None:")
    null = r"b'\xff'" if field.spec.tag is None else r"b'\x00'"
    e.put(depth + 1, f"{w}({null})")
    e.put(depth, "else:")
    e.put(depth + 1, rf"{w}(b'\x01')")
    e.put(depth + 1, f"{inner}(o.{field.name}, {w})")


def _encode_array(e: Emitter, field: Field, depth: int, w: str) -> None:
    _encode_length(e, False, "len(v)", depth, w)
    if field.struct is not None:
        inner = e.name(f"encode_{field.name}", e.nested(field.struct))
        e.put(depth, f"for item in v if len(v) < {PACED_MIN} else paced(v):")
        e.put(depth + 1, f"{inner}(item, {w})")
        return
    assert field.primitive is not None
    if field.primitive.format == "16s":
        e.put(depth, f"{w}(b''.join(v))")
    elif field.primitive.format:
        e.name("pack", struct.pack)
        e.put(depth, f"{w}(pack(f'>{{len(v)}}{field.primitive.format}', *v))")
    else:
        e.put(depth, f"for v in v if len(v) < {PACED_MIN} else paced(v):")
        _encode_octets(e, field.primitive.name, depth + 1, w)


def _encode_tagged(e: Emitter) -> None:
    if not e.tagged:
        e.put(1, r"w(b'\x00')")
        return
    e.put(1, "tags = []")
    for field in e.tagged:
        e.put(1, f"if {_differs_from_default(e, field)}:")
        e.put(2, "value = []")
        e.put(2, "put = value.append")
        _encode_value(e, field, 2, "put")
        e.put(2, f"tags.append(({field.spec.tag}, b''.join(value)))")
    e.put(1, "w(uvarint(len(tags)))")
    e.put(1, "for tag, value in tags:")
    e.put(2, "w(uvarint(tag)); w(uvarint(len(value))); w(value)")


def _differs_from_default(e: Emitter, field: Field) -> str:
    """Write the condition under which a tagged field is sent at all."""
    default = field.default()
    if field.struct is None or field.is_array or default is None:
        return f"o.{field.name} != {e.name('default_' + field.name, default)}"
    # A comparison by attributes is several times as fast as the dataclass's own, and a
    # Fetch response has three such fields for each partition.
    parts = []
    for inner in fields_of(field.struct):
        value = getattr(default, inner.name)
        label = f"default_{field.name}_{inner.name}"
        written = repr(value) if isinstance(value, int) else e.name(label, value)
        parts.append(f"o.{field.name}.{inner.name} != {written}")
    if field.is_nullable(e.version):
        parts.insert(0, f"o.{field.name} is None")
    return " or ".join(parts)
