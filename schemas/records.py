"""Keys and values that begin with the id of their schema, as Confluent's serializers write them.

    magic   u8      0
    id      i32     of the schema, in the registry
    data            by the schema: Avro's binary encoding; Protobuf's after the message's indexes
                    (protobuf_records.py); JSON

The layout is of Confluent's wire format.
"""

from __future__ import annotations

import json
import math
import struct
import threading
from collections import OrderedDict
from typing import Protocol

from odradek.dataclass import dataclass
from odradek.schemas.errors import SchemaError, SchemaUnavailable, reason_of
from odradek.schemas.registry import AVRO, JSON, LATEST, PROTOBUF, Registry, Schema

_HEAD = struct.Struct(">bi")
_CODECS_MAX = 200
_REFERENCES_MAX = 100


class Codec(Protocol):
    """Decodes and encodes the data of one schema."""

    def decode(self, data: bytes) -> object:
        """Return data as of JSON. Raises SchemaError."""

    def encode(self, data: object, name: str | None = None) -> bytes:
        """Return data of JSON as a record; `name` is of a message. Raises SchemaError."""


class JsonCodec:
    """Data that is JSON: the schema does not say how it is written."""

    def decode(self, data: bytes) -> object:
        """Return data as of JSON. Raises SchemaError."""
        try:
            found: object = json.loads(
                data.decode(), parse_constant=_no_number, parse_float=_number
            )
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"the data is not JSON: {reason_of(error)}") from error
        return found

    def encode(self, data: object, name: str | None = None) -> bytes:
        """Return data of JSON as JSON. Raises SchemaError."""
        if name is not None:
            raise SchemaError("the schema has no messages: it is not of Protobuf")
        try:
            text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            return text.encode()
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"the data is not JSON: {reason_of(error)}") from error


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _number(text: str) -> float:
    """Return a number; raise ValueError for one that Python would print as Infinity."""
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:40]} is too large")
    return found


@dataclass(frozen=True, slots=True)
class Decoded:
    """A key or value by its schema; `problem` says why there is no data."""

    schema_id: int
    kind: str | None
    data: object
    problem: str | None = None


def undecoded(octets: bytes, problem: str) -> Decoded | None:
    """Return a problem of a key or value, None when no schema's id is before it."""
    number = _schema_id(octets)
    return None if number is None else Decoded(number, None, None, problem)


def _schema_id(octets: bytes) -> int | None:
    """Return the id of the schema that a key or value begins with."""
    if len(octets) < _HEAD.size or octets[0] != 0:
        return None
    number: int = _HEAD.unpack_from(octets)[1]
    # Ids begin at 1: this may be a number of eight bytes, for instance.
    return number if number > 0 else None


class Codecs:
    """The codecs of a registry's schemas; any thread may ask."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._lock = threading.Lock()
        # By id: the kind and its codec, or why there is none. A schema never changes.
        self._known: OrderedDict[int, tuple[str, Codec | SchemaError]] = OrderedDict()

    def decode(self, octets: bytes) -> Decoded | None:
        """Return the data of a key or value, None when no schema's id is before it."""
        number = _schema_id(octets)
        if number is None:
            return None
        kind = None
        try:
            kind, codec = self.of(number)
            return Decoded(number, kind, codec.decode(octets[_HEAD.size :]))
        except SchemaError as error:
            return Decoded(number, kind, None, str(error))

    def encode(self, number: int, data: object, message: str | None = None) -> bytes:
        """Return data of JSON by a schema, `message` names one of Protobuf. Raises SchemaError."""
        return _HEAD.pack(0, number) + self.of(number)[1].encode(data, message)

    def id_of(self, name: str) -> int:
        """Return the id of a schema: the id itself, or the latest of a subject.

        Raises SchemaError.
        """
        if name.isascii() and name.isdigit() and len(name) < 10:
            return int(name)
        return self.registry.version(name, LATEST)[0]

    def of(self, number: int) -> tuple[str, Codec]:
        """Return a schema's kind and codec. Raises SchemaError."""
        with self._lock:
            known = self._known.get(number)
        if known is None:
            schema = self.registry.by_id(number)
            texts = dict[str, str]()
            self._collect(schema, texts)
            known = schema.kind, _made(schema, texts)
            with self._lock:
                self._known[number] = known
                if len(self._known) > _CODECS_MAX:
                    self._known.popitem(last=False)
        kind, codec = known
        if isinstance(codec, SchemaError):
            raise codec
        return kind, codec

    def _collect(self, schema: Schema, texts: dict[str, str]) -> None:
        """Add the schemas to which one refers, those first on which others depend."""
        for one in schema.references:
            if one.name in texts:
                continue
            if len(texts) >= _REFERENCES_MAX:
                raise SchemaError(f"the schema refers to more than {_REFERENCES_MAX} others")
            texts[one.name] = ""
            found = self.registry.version(one.subject, one.version)[1]
            self._collect(found, texts)
            del texts[one.name]
            texts[one.name] = found.text


def _made(schema: Schema, texts: dict[str, str]) -> Codec | SchemaError:
    try:
        if schema.kind == AVRO:
            from odradek.schemas.avro_records import AvroCodec

            return AvroCodec(schema.text, texts)
        if schema.kind == PROTOBUF:
            from odradek.schemas.protobuf_records import ProtobufCodec

            return ProtobufCodec(schema.text, texts)
    except SchemaUnavailable:
        raise
    except SchemaError as error:
        return error
    except ImportError:
        return SchemaError(
            f"this needs the extra `console`: pip install odradek[console] ({schema.kind})"
        )
    if schema.kind == JSON:
        return JsonCodec()
    return SchemaError(f"schemas of the kind {schema.kind} are not known")
