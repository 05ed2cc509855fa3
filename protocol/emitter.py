"""The lines of one generated function, and the names that they use."""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from typing import Any

from odradek.protocol import wire
from odradek.protocol.errors import ProtocolError
from odradek.protocol.pacing import paced_in_codec
from odradek.protocol.schema import Field, fields_of

# The names that all generated code may use.
_HELPERS = {
    "ProtocolError": ProtocolError,
    "count_error": wire.count_error,
    "memory_error": wire.memory_error,
    "null_error": wire.null_error,
    "paced": paced_in_codec,
    "read_uvarint": wire.read_uvarint,
    "size_error": wire.size_error,
    "skip_tagged": wire.skip_tagged,
    "string_error": wire.string_error,
    "take": wire.take,
    "uvarint": wire.uvarint,
}


class Emitter:
    """Collects the source of one codec function for one class, version and flexibility.

    `nested` returns the finished function for a struct inside the class, of the same version.
    """

    def __init__(
        self, cls: type, version: int, flexible: bool, nested: Callable[[type], Any]
    ) -> None:
        self.cls, self.version, self.flexible, self.nested = cls, version, flexible, nested
        present = [f for f in fields_of(cls) if version in f.spec.versions]
        self.plain = [f for f in present if f.spec.tag is None]
        self.tagged = sorted(
            (f for f in present if f.spec.tag is not None), key=lambda f: f.spec.tag or 0
        )
        self.absent = [f for f in fields_of(cls) if version not in f.spec.versions]
        self.lines: list[str] = []
        self.names: dict[str, Any] = dict(_HELPERS)

    def put(self, depth: int, line: str) -> None:
        """Append a line at an indentation depth."""
        self.lines.append("    " * depth + line)

    def source(self) -> str:
        """Return the lines put so far."""
        return "\n".join(self.lines) + "\n"

    def name(self, label: str, value: Any) -> str:
        """Make a value available to the function under a name; return the name."""
        self.names[label] = value
        return label

    def packer(self, formats: str, method: str) -> str:
        """Return a name for the `pack` or `unpack_from` of a big-endian struct."""
        label = f"{method}_{formats.replace('?', 'bool')}"
        return self.name(label, getattr(struct.Struct(">" + formats), method))

    def compile(self, function: str) -> Any:
        """Compile the lines into the function that they define, and make tracebacks show them."""
        source = self.source()
        flexible = "" if self.flexible else " classic"
        filename = f"<{function} {self.cls.__name__} v{self.version}{flexible}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        exec(compile(source, filename, "exec"), self.names)  # noqa: S102 - our own declarations
        return self.names[function]


def fixed_format(field: Field) -> str | None:
    """Return the struct format of a field of fixed size, or None for any other field."""
    if field.primitive is None or field.is_array:
        return None
    return field.primitive.format


def runs(fields: list[Field]) -> list[list[Field]]:
    """Group neighbouring fields of fixed size; any other field is a group of its own."""
    groups: list[list[Field]] = []
    for field in fields:
        if groups and fixed_format(field) and fixed_format(groups[-1][-1]):
            groups[-1].append(field)
        else:
            groups.append([field])
    return groups
