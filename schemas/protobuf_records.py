"""Protobuf: messages to JSON, and back, by Protobuf's own mapping.

A registry has the text of a .proto file. The compiler of `grpcio-tools` reads it in a process of
its own, for at most ten seconds: it is not made for the text of strangers.

    indexes     i32 count, then i32 indexes: the message within the file, and within messages;
                both zigzag varints. A single 0 stands for the first message.
    message

The layout is of Confluent's KafkaProtobufSerializer (MessageIndexes).
"""

from __future__ import annotations

import subprocess  # nosec B404: protoc's arguments are names of this module
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from odradek.schemas.errors import SchemaError

_COMPILE_S = 10.0
_INDEXES_MAX = 64
_FILE = "odradek_schema.proto"


class ProtobufCodec:
    """One schema: a file with messages."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """Compile a schema, with the files that it imports. Raises SchemaError."""
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in _compiled({**references, _FILE: text}).file:
                pool.Add(file)
            self._file = pool.FindFileByName(_FILE)
        except (TypeError, KeyError) as error:
            raise SchemaError(f"this is not a schema of Protobuf: {error}") from error
        self._pool = pool

    def decode(self, data: bytes) -> object:
        """Return a record's data as of JSON. Raises SchemaError."""
        indexes, position = read_indexes(data)
        message = message_factory.GetMessageClass(self._message_at(indexes))()
        try:
            message.ParseFromString(data[position:])
            return json_format.MessageToDict(
                message, preserving_proto_field_name=True, descriptor_pool=self._pool
            )
        except Exception as error:  # the library raises many kinds
            raise SchemaError(f"the data does not follow its schema: {error}") from error

    def encode(self, data: object, name: str | None = None) -> bytes:
        """Return data of JSON as the message of a name, else the first. Raises SchemaError."""
        indexes = (0,) if name is None else self._indexes_of(name)
        message = message_factory.GetMessageClass(self._message_at(indexes))()
        try:
            json_format.ParseDict(data, message, descriptor_pool=self._pool)
            return write_indexes(indexes) + bytes(message.SerializeToString())
        except Exception as error:  # the library raises many kinds
            raise SchemaError(f"the data does not follow the schema: {error}") from error

    def _message_at(self, indexes: Sequence[int]) -> Any:
        found: Any = None
        for index in indexes:
            types = self._messages_in(found)
            if not 0 <= index < len(types):
                raise SchemaError(f"the schema has no message {'.'.join(map(str, indexes))}")
            found = types[index]
        return found

    def _indexes_of(self, name: str) -> tuple[int, ...]:
        try:
            found = self._pool.FindMessageTypeByName(name)
        except KeyError as error:
            known = ", ".join(one.full_name for one in self._messages_in(None))
            raise SchemaError(f"the schema has no message {name}: it has {known}") from error
        indexes: list[int] = []
        while found is not None:
            outer = found.containing_type
            indexes.append(self._messages_in(outer).index(found))
            found = outer
        return tuple(reversed(indexes))

    def _messages_in(self, outer: Any) -> list[Any]:
        """Return the messages within one, or those of the file."""
        return list(
            self._file.message_types_by_name.values() if outer is None else outer.nested_types
        )


def read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Read the indexes of a message; return them, and the position after. Raises SchemaError."""
    count, position = _varint(data, 0)
    if count == 0:
        return (0,), position
    if not 0 < count <= _INDEXES_MAX:
        raise SchemaError(f"the data does not name a message: {count} indexes")
    indexes = []
    for _ in range(count):
        index, position = _varint(data, position)
        indexes.append(index)
    return tuple(indexes), position


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Return the indexes of a message as they stand before it."""
    if tuple(indexes) == (0,):
        return b"\x00"
    written = bytearray()
    for number in (len(indexes), *indexes):
        left = number << 1
        while left > 0x7F:
            written.append(left & 0x7F | 0x80)
            left >>= 7
        written.append(left)
    return bytes(written)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for at, octet in enumerate(data[position : position + 5], position + 1):
        value |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            return value >> 1 ^ -(value & 1), at
    raise SchemaError("the data does not name a message: it is too short")


def _compiled(files: Mapping[str, str]) -> descriptor_pb2.FileDescriptorSet:
    import grpc_tools

    bundled = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="odradek-schema-") as name:
        folder = Path(name)
        for path, text in files.items():
            file = folder / _inside(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        command = [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{bundled}",
            "--include_imports", f"--descriptor_set_out={folder / 'out'}", _FILE,
        ]  # fmt: skip
        try:
            done = subprocess.run(  # nosec B603: no shell, and no argument of a stranger
                command, cwd=folder, capture_output=True, text=True, timeout=_COMPILE_S
            )
        except subprocess.TimeoutExpired as error:
            raise SchemaError(f"protoc takes more than {_COMPILE_S:g} s for the schema") from error
        if done.returncode:
            raise SchemaError(f"this is not a schema of Protobuf: {_reason(done.stderr)}")
        return descriptor_pb2.FileDescriptorSet.FromString((folder / "out").read_bytes())


def _inside(path: str) -> PurePosixPath:
    """Return the path of an imported file; raise SchemaError for one outside the folder."""
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts or not found.parts or "\0" in path:
        raise SchemaError(f"the schema refers to a file with an impossible name: {path}")
    return found


def _reason(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith(_FILE)]
    return (lines or text.splitlines() or ["protoc failed"])[0].removeprefix(f"{_FILE}:")[:300]
