"""The form of the records of groups: a key and a value, each behind an int16.

    key    the number of the kind | the key's fields, in the version with that number
    value  0                      | the value's fields, version 0
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from odradek.broker.errors import Refusal
from odradek.dataclass import dataclass
from odradek.protocol.compiler import decode_prefix, encode
from odradek.protocol.errors import ErrorCode, ProtocolError

KeyValue = tuple[bytes, bytes | None]

_INT16 = Struct(">h")
_VALUE_VERSION = 0
_NAME_BYTES_MAX = 2**15 - 1
_VALUE_HEAD = _INT16.pack(_VALUE_VERSION)


@dataclass(frozen=True, slots=True)
class Layout:
    """The key and the value of a kind of records."""

    key: type[Any]
    # None if no field of the value is needed.
    value: type[Any] | None
    # The field of the key with the record's name, None for records of the whole group.
    name_field: str | None = None


def check_key_names(*names: str) -> None:
    """Raise Refusal for names that are too long for the key of a record."""
    if any(len(name.encode("utf-8", "surrogatepass")) > _NAME_BYTES_MAX for name in names):
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)


def encode_record(
    layout: Layout, kind: int, group_id: str, name: str, value: object | None
) -> KeyValue:
    """Encode a record as the key and value to append.

    Raises ProtocolError when a string is longer than the format can hold.
    """
    named = {} if layout.name_field is None else {layout.name_field: name}
    key = _INT16.pack(kind) + encode(layout.key(group_id=group_id, **named), kind)
    if value is None:
        return key, None
    return key, _VALUE_HEAD + encode(value, _VALUE_VERSION)


def decode_key(layout: Layout, kind: int, key: bytes) -> tuple[str, str]:
    """Return the group and the name in a key. Raises ProtocolError."""
    # Kafka, too, ignores bytes of a key after the fields that it knows.
    read, _ = decode_prefix(layout.key, kind, memoryview(key), _INT16.size)
    return read.group_id, getattr(read, layout.name_field) if layout.name_field else ""


def decode_value(layout: Layout, kind: int, value: bytes | None) -> Any:
    """Return a value whose fields are needed, None for none. Raises ProtocolError."""
    if value is None:
        return None
    assert layout.value is not None, "its fields are needed"
    if value[: _INT16.size] != _VALUE_HEAD:
        raise ProtocolError(f"a value of kind {kind} has an unknown version")
    # Bytes after the fields are ignored: a newer Kafka may have added fields at the end.
    return decode_prefix(layout.value, _VALUE_VERSION, memoryview(value), _INT16.size)[0]
