"""Emits the source of decode functions: `decode(b, p, m)` returns a value and the next position.

In the source, `b` is the frame, `p` the position, `o` the value under construction, `n` a length,
and `m` a list of one number: the memory that the values may still take.
"""

from __future__ import annotations

import struct

from odradek.protocol.emitter import Emitter, fixed_format, runs
from odradek.protocol.footprint import TAG_BYTES, has_arrays, item_bytes
from odradek.protocol.pacing import PACED_MIN
from odradek.protocol.schema import Field

_STRING_BYTES_MAX = 0x7FFF


def emit_decode(e: Emitter) -> None:
    """Emit the decode function of the emitter's class and version."""
    e.name("new", e.cls.__new__)
    e.name("cls", e.cls)
    e.put(0, "def decode(b, p, m=None):")
    e.put(1, "o = new(cls)")
    for field in e.absent:
        _decode_default(e, field)
    for run in runs(e.plain):
        if fixed_format(run[0]):
            _decode_fixed(e, run)
        else:
            _decode_value(e, run[0], 1)
    if e.flexible:
        _decode_tagged(e)
    e.put(1, "return o, p")


def _decode_default(e: Emitter, field: Field) -> None:
    default = field.default()
    if default is None or isinstance(default, (bool, int, float, str, bytes)):
        e.put(1, f"o.{field.name} = {default!r}")
    else:
        e.put(1, f"o.{field.name} = {e.name('default_' + field.name, field.default)}()")


def _decode_fixed(e: Emitter, run: list[Field]) -> None:
    formats = "".join(fixed_format(field) or "" for field in run)
    targets = ", ".join(f"o.{field.name}" for field in run)
    size = struct.calcsize(">" + formats)
    e.put(1, f"{targets}, = {e.packer(formats, 'unpack_from')}(b, p)")
    e.put(1, f"p += {size}")


def _decode_value(e: Emitter, field: Field, depth: int) -> None:
    """Emit the decoding of one field that is tagged or not of fixed size."""
    target = f"o.{field.name}"
    fixed = fixed_format(field)
    if fixed:
        size = struct.calcsize(">" + fixed)
        e.put(depth, f"{target}, = {e.packer(fixed, 'unpack_from')}(b, p)")
        e.put(depth, f"p += {size}")
        return
    if field.struct is not None and not field.is_array:
        _decode_struct(e, field, depth)
        return
    _decode_length(e, field, depth)
    e.put(depth, "if n < 0:")
    if field.is_nullable(e.version):
        e.put(depth + 1, f"{target} = None")
    else:
        e.put(depth + 1, f"raise null_error({field.name!r})")
    e.put(depth, "else:")
    if field.is_array:
        _decode_array(e, field, depth + 1)
    else:
        assert field.primitive is not None
        _decode_octets(e, target, field.primitive.name, depth + 1)


def _decode_length(e: Emitter, field: Field, depth: int) -> None:
    is_string = (
        field.primitive is not None and field.primitive.name == "string" and not field.is_array
    )
    if e.flexible:
        e.put(depth, "n = b[p]; p += 1")
        e.put(depth, "if n > 127:")
        e.put(depth + 1, "n, p = read_uvarint(b, p - 1)")
        if is_string:  # Kafka allows no more than a classic length can hold
            e.put(depth + 1, f"if n > {_STRING_BYTES_MAX + 1}:")
            e.put(depth + 2, f"raise string_error({field.name!r}, n - 1)")
        e.put(depth, "n -= 1")
    else:
        form, size = ("h", 2) if is_string else ("i", 4)
        e.put(depth, f"n, = {e.packer(form, 'unpack_from')}(b, p); p += {size}")


def _decode_octets(e: Emitter, target: str, kind: str, depth: int) -> None:
    made = {
        "string": "str(b[p:p + n], 'utf-8')",
        "bytes": "bytes(b[p:p + n])",
        "records": "b[p:p + n]",
    }[kind]
    e.put(depth, "if n > len(b) - p:")
    e.put(depth + 1, "raise size_error(n)")
    e.put(depth, f"{target} = {made}; p += n")


def _decode_struct(e: Emitter, field: Field, depth: int) -> None:
    assert field.struct is not None
    inner = e.name(f"decode_{field.name}", e.nested(field.struct))
    arguments = _arguments(e, field.struct)
    if not field.is_nullable(e.version):
        e.put(depth, f"o.{field.name}, p = {inner}({arguments})")
        return
    # An int8 precedes a nullable struct: -1 null, 1 present; 0 or 1 precedes a tagged one.
    e.put(depth, f"n, = {e.packer('b', 'unpack_from')}(b, p); p += 1")
    e.put(depth, "if n < 0:" if field.spec.tag is None else "if n <= 0:")
    e.put(depth + 1, f"o.{field.name} = None")
    e.put(depth, "else:")
    e.put(depth + 1, f"o.{field.name}, p = {inner}({arguments})")


def _arguments(e: Emitter, cls: type) -> str:
    """Write the arguments of a nested decoder's call: only arrays and tags are charged for."""
    return "b, p, m" if e.flexible or has_arrays(cls) else "b, p"


def _decode_array(e: Emitter, field: Field, depth: int) -> None:
    target = f"o.{field.name}"
    if field.struct is not None:
        inner = e.name(f"decode_{field.name}", e.nested(field.struct))
        _check_count(e, field, depth, 1)
        e.put(depth, f"{target} = items = []")
        e.put(depth, f"for _ in range(n) if n < {PACED_MIN} else paced(range(n)):")
        e.put(depth + 1, f"item, p = {inner}({_arguments(e, field.struct)})")
        e.put(depth + 1, "items.append(item)")
        return
    assert field.primitive is not None
    if field.primitive.format == "16s":
        _check_count(e, field, depth, 16)
        e.put(depth, f"{target} = [bytes(b[i:i + 16]) for i in range(p, p + 16 * n, 16)]")
        e.put(depth, "p += 16 * n")
    elif field.primitive.format:
        size = struct.calcsize(">" + field.primitive.format)
        e.name("unpack_from", struct.unpack_from)
        _check_count(e, field, depth, size)
        e.put(depth, f"{target} = list(unpack_from(f'>{{n}}{field.primitive.format}', b, p))")
        e.put(depth, f"p += {size} * n")
    else:
        _check_count(e, field, depth, 1)
        e.put(depth, f"{target} = items = []")
        e.put(depth, f"for _ in range(n) if n < {PACED_MIN} else paced(range(n)):")
        item = Field(field.name, field.spec, field.primitive, None, False, False)
        _decode_length(e, item, depth + 1)
        e.put(depth + 1, "if n < 0:")
        e.put(depth + 2, f"raise null_error({field.name!r})")
        _decode_octets(e, "item", field.primitive.name, depth + 1)
        e.put(depth + 1, "items.append(item)")


def _check_count(e: Emitter, field: Field, depth: int, item_size_min: int) -> None:
    """Refuse items that do not fit in the rest of the frame, or in the memory that is left."""
    left = "len(b) - p" if item_size_min == 1 else f"(len(b) - p) // {item_size_min}"
    e.put(depth, f"if n > {left}:")
    e.put(depth + 1, "raise count_error(n)")
    e.put(depth, f"m[0] = left = m[0] - n * {item_bytes(field, e.version)}")
    e.put(depth, "if left < 0:")
    e.put(depth + 1, "raise memory_error()")


def _decode_tagged(e: Emitter) -> None:
    """Emit the tagged section: uvarint count, then (uvarint tag, uvarint size, value) each."""
    for field in e.tagged:
        _decode_default(e, field)
    e.put(1, "n = b[p]; p += 1")
    e.put(1, "if n:")
    e.put(2, "if n > 127:")
    e.put(3, "n, p = read_uvarint(b, p - 1)")
    e.put(2, f"m[0] = left = m[0] - n * {TAG_BYTES}")
    e.put(2, "if left < 0:")
    e.put(3, "raise memory_error()")
    if not e.tagged:
        e.put(2, "p = skip_tagged(b, p, n)")
        return
    e.put(2, f"for _ in range(n) if n < {PACED_MIN} else paced(range(n)):")
    e.put(3, "tag, p = read_uvarint(b, p)")
    e.put(3, "size, p = read_uvarint(b, p)")
    e.put(3, "take(b, p, size)")
    e.put(3, "end = p + size")
    branch = "if"
    for field in e.tagged:
        e.put(3, f"{branch} tag == {field.spec.tag}:")
        _decode_value(e, field, 4)
        e.put(4, "if p != end:")
        e.put(5, f"raise ProtocolError('tagged field {field.name} has a wrong size')")
        branch = "elif"
    e.put(3, "else:")
    e.put(4, "p = end")
