"""Protobuf: messages to JSON, and back, by Protobuf's own mapping.

A registry has the text of a .proto file. The compiler of `grpcio-tools` reads it in a process of
its own, for at most ten seconds: it is not made for the text of strangers.

    indexes     i32 count, then i32 indexes: the message within the file, and within messages;
                both zigzag varints. A single 0 stands for the first message.
    message

The layout is of Confluent's KafkaProtobufSerializer (MessageIndexes).
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from odradek.schemas.errors import SchemaError, SchemaUnavailable, reason_of
from odradek.schemas.known_files import write_known_files

_COMPILE_S = 10.0
_INDEXES_MAX = 64
_FILE = "odradek_schema.proto"
_IMPORTS = "odradek_imports.proto"
# Of a file that another one imports: nothing that a string of Protobuf would end at.
_PATH = re.compile(r"[\w.+@/ -]+")
# As protoc names the place of a mistake.
_MISTAKE = re.compile(r"^\S+\.proto:", re.M)


class ProtobufCodec:
    """One schema: a file with messages."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """Compile a schema, with the files that it imports. Raises SchemaError."""
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in _files({**references, _FILE: text}):
                pool.Add(file)
            self._file = pool.FindFileByName(_FILE)
        except (TypeError, KeyError, ValueError, OSError) as error:
            raise SchemaError(f"this is not a schema of Protobuf: {reason_of(error)}") from error
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
            reason = reason_of(error)
            raise SchemaError(f"the data does not follow its schema: {reason}") from error

    def encode(self, data: object, name: str | None = None) -> bytes:
        """Return data of JSON as the message of a name, else the first. Raises SchemaError."""
        indexes = (0,) if name is None else self._indexes_of(name)
        if not isinstance(data, dict):
            raise SchemaError("the data does not follow the schema: it is no JSON object")
        message = message_factory.GetMessageClass(self._message_at(indexes))()
        try:
            json_format.ParseDict(data, message, descriptor_pool=self._pool)
            encoded: bytes = message.SerializeToString()
        except Exception as error:  # the library raises many kinds
            reason = reason_of(error)
            raise SchemaError(f"the data does not follow the schema: {reason}") from error
        return write_indexes(indexes) + encoded

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
        except KeyError:
            found = None
        if found is None or found.file.name != _FILE:
            known = ", ".join(one.full_name for one in self._messages_in(None))
            raise SchemaError(f"the schema has no message {name}: it has {known}")
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


def _files(texts: Mapping[str, str]) -> list[descriptor_pb2.FileDescriptorProto]:
    """Return the files of a schema, each after those that it imports.

    A text is that of a .proto file, or such a file's descriptor in base64: clients in Python
    register descriptors, and some registries return them as they are.
    """
    described = {path: found for path, text in texts.items() if (found := _described(path, text))}
    sources = {path: text for path, text in texts.items() if path not in described}
    main = described.pop(_FILE, None)
    if main is None:
        return list(_compiled(sources, described, _FILE).file)
    if not main.dependency:
        return [main]
    for path in main.dependency:
        if not _PATH.fullmatch(path):
            raise SchemaError(f"the schema refers to a file with an impossible name: {path}")
    imports = "".join(f'import "{path}";\n' for path in main.dependency)
    sources[_IMPORTS] = f'syntax = "proto3";\n{imports}'
    return [*_compiled(sources, described, _IMPORTS).file, main]


def _described(path: str, text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Return the descriptor that a text is in base64, None when it is none."""
    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(
            base64.b64decode("".join(text.split()), validate=True)
        )
    except Exception:  # of the library, of any kind
        return None
    if not found.name:
        return None  # the text of an empty file
    found.name = path
    return found


def _compiled(
    sources: Mapping[str, str],
    described: Mapping[str, descriptor_pb2.FileDescriptorProto],
    first: str,
) -> descriptor_pb2.FileDescriptorSet:
    """Compile a file, and those that it imports."""
    with tempfile.TemporaryDirectory(prefix="odradek-schema-") as name:
        folder, kept = Path(name) / "sources", Path(name) / "described"
        known = write_known_files(Path(name) / "known")
        for path, text in sources.items():
            file = folder / _inside(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        found = descriptor_pb2.FileDescriptorSet(file=list(described.values()))
        kept.write_bytes(found.SerializeToString())
        target = Path(name) / "compiled"
        command = [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}",
            *(f"-I{one}" for one in known),
            *([f"--descriptor_set_in={kept}"] if described else []),
            "--include_imports", f"--descriptor_set_out={target}", first,
        ]  # fmt: skip
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, timeout=_COMPILE_S)
        except subprocess.TimeoutExpired as error:
            message = f"protoc takes more than {_COMPILE_S:g} s for the schema"
            raise SchemaUnavailable(message) from error
        if done.returncode:
            reason = _reason(done.stderr.decode(errors="replace").replace(f"{folder}/", ""))
            raise SchemaError(f"this is not a schema of Protobuf: {reason}")
        return descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())


def _inside(path: str) -> PurePosixPath:
    """Return the path of an imported file; raise SchemaError for one outside the folder."""
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts or not found.parts or "\0" in path:
        raise SchemaError(f"the schema refers to a file with an impossible name: {path}")
    return found


def _reason(text: str) -> str:
    """Return the first mistake that protoc names."""
    lines = [line for line in text.splitlines() if _MISTAKE.match(line)]
    found = (lines or text.splitlines()[-1:] or ["protoc failed"])[0]
    return found.removeprefix(f"{_FILE}:").strip()[:300]
