"""Avro: binary records to JSON, and back.

A library in plain Python reads them, so that data nested too deeply ends in an error: a library
in C would end the process. Values that JSON lacks become text: bytes as base64, decimals as
numbers in text ("1.50"), times in ISO 8601. A union's value is shown without its type.

A few bytes must not become millions of values: an array may have 2**31 items that take no byte
each, and records nested in records may double at each level. So a schema is refused in which a
type has many more values than bytes.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import avro.errors
import avro.io
import avro.name
import avro.schema

from odradek.schemas.errors import SchemaError

# How many values a type may have besides those of its bytes, and for each byte.
_FREE_VALUES, _VALUES_PER_BYTE = 64, 8
_ENDLESS = 1 << 40


class AvroCodec:
    """One schema."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """Parse a schema, after those that it refers to. Raises SchemaError."""
        names = avro.name.Names()
        try:
            for one in references.values():
                avro.schema.make_avsc_object(json.loads(one), names)
            self._schema = avro.schema.make_avsc_object(json.loads(text), names)
        except (avro.errors.AvroException, ValueError, RecursionError) as error:
            raise SchemaError(f"this is not a schema of Avro: {error}") from error
        _Sizes().check(self._schema)
        self._reader = avro.io.DatumReader(self._schema)
        self._writer = avro.io.DatumWriter(self._schema)

    def decode(self, data: bytes) -> object:
        """Return a record's data as of JSON. Raises SchemaError."""
        source = io.BytesIO(data)
        try:
            found = as_json(self._reader.read(avro.io.BinaryDecoder(source)))
        except RecursionError as error:
            raise SchemaError("the data is nested too deeply") from error
        except Exception as error:  # the library raises many kinds
            raise SchemaError(f"the data does not follow its schema: {error}") from error
        if source.tell() < len(data):
            left = len(data) - source.tell()
            raise SchemaError(f"the data does not follow its schema: {left} bytes are left")
        return found

    def encode(self, data: object) -> bytes:
        """Return data of JSON as a record. Raises SchemaError."""
        target = io.BytesIO()
        try:
            datum = _datum(self._schema, data)
            self._writer.write(datum, avro.io.BinaryEncoder(target))
        except SchemaError:
            raise
        except Exception as error:  # the library raises many kinds
            reason = " ".join(str(error).split())
            raise SchemaError(f"the data does not follow the schema: {reason}") from error
        return target.getvalue()


class _Sizes:
    """The fewest bytes of types, and the values in so many bytes."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}

    def check(self, schema: Any) -> tuple[int, int]:
        """Return the values and bytes of a type; raise SchemaError for too many values."""
        name = getattr(schema, "fullname", None) if schema.type in _NAMED else None
        if name in self._known:
            return self._known[name]
        if name is not None:
            # A record that holds itself, and not in a union or an array, has no end.
            self._known[name] = _ENDLESS, 0
        values, size_bytes = self._sizes(schema)
        if values > _FREE_VALUES + _VALUES_PER_BYTE * size_bytes:
            raise SchemaError(f"the schema is refused: {name or schema.type} has too many values")
        if name is not None:
            self._known[name] = values, size_bytes
        return values, size_bytes

    def _sizes(self, schema: Any) -> tuple[int, int]:
        if schema.type in ("record", "error"):
            sizes = [self.check(field.type) for field in schema.fields]
            values = min(1 + sum(one for one, _ in sizes), _ENDLESS)
            return values, min(sum(one for _, one in sizes), _ENDLESS)
        # A type within one of these may hold it again: at least one byte lies between.
        if schema.type == "union":
            with_own = [self._later(one) for one in schema.schemas]
            return 1, 1 + min(with_own, default=0)
        if schema.type == "array":
            if self._later(schema.items) == 0:
                raise SchemaError("the schema is refused: an array has items without bytes")
            return 1, 1
        if schema.type == "map":
            self._later(schema.values)
            return 1, 1
        return 1, _SMALLEST.get(schema.type, schema.size if schema.type == "fixed" else 1)

    def _later(self, schema: Any) -> int:
        """Check a type that is met again within itself; return its fewest bytes."""
        name = getattr(schema, "fullname", None) if schema.type in _NAMED else None
        if self._known.get(name or "") == (_ENDLESS, 0):
            return 1  # it is being checked, and has a union or an array with at least one byte
        return self.check(schema)[1]


_NAMED = frozenset(("record", "error", "enum", "fixed"))
_SMALLEST = {"null": 0, "float": 4, "double": 8}


def as_json(datum: object) -> object:
    """Return a datum of the library as data of JSON."""
    if isinstance(datum, dict):
        return {str(key): as_json(value) for key, value in datum.items()}
    if isinstance(datum, list):
        return [as_json(one) for one in datum]
    if isinstance(datum, bytes | bytearray):
        return base64.b64encode(datum).decode()
    if isinstance(datum, float):
        return datum if math.isfinite(datum) else str(datum)
    if datum is None or isinstance(datum, bool | int | str):
        return datum
    if isinstance(datum, dt.datetime | dt.date | dt.time):
        return datum.isoformat().replace("+00:00", "Z")
    return str(datum)  # Decimal, UUID


def _datum(schema: Any, data: Any) -> object:
    """Return data of JSON as a datum; the writer refuses data that does not fit."""
    kind = schema.type
    if kind == "union":
        return _in_union(schema, data)
    if kind in ("record", "error") and isinstance(data, dict):
        names = {field.name for field in schema.fields}
        unknown = sorted(data.keys() - names)
        if unknown:
            raise SchemaError(f"{schema.name} has no field {unknown[0]}")
        return {
            field.name: _datum(field.type, data[field.name])
            if field.name in data
            else _default(schema, field)
            for field in schema.fields
        }
    if kind == "array" and isinstance(data, list):
        return [_datum(schema.items, one) for one in data]
    if kind == "map" and isinstance(data, dict):
        return {key: _datum(schema.values, value) for key, value in data.items()}
    return _leaf(schema, data)


def _in_union(schema: Any, data: Any) -> object:
    """Return data in the first type of a union that it fits."""
    for one in schema.schemas:
        try:
            datum = _datum(one, data)
            if avro.io.validate(one, datum):
                return datum
        except (SchemaError, ValueError, ArithmeticError, AttributeError):
            continue
    kinds = ", ".join(getattr(one, "name", None) or one.type for one in schema.schemas)
    raise SchemaError(f"{json.dumps(data)[:100]} is none of {kinds}")


def _default(record: Any, field: Any) -> object:
    if not field.has_default:
        raise SchemaError(f"{record.name} needs the field {field.name}")
    kind = field.type.schemas[0] if field.type.type == "union" else field.type
    if kind.type in ("bytes", "fixed") and isinstance(field.default, str):
        return field.default.encode("latin-1")  # as the specification writes such defaults
    return _datum(field.type, field.default)


def _leaf(schema: Any, data: Any) -> object:
    kind = getattr(schema, "logical_type", None) or schema.type
    if isinstance(data, str):
        if kind == "decimal":
            return Decimal(data)
        if kind in ("bytes", "fixed"):
            return base64.b64decode(data, validate=True)
        if kind == "date":
            return dt.date.fromisoformat(data)
        if kind.startswith("time-"):
            return dt.time.fromisoformat(data)
        if kind.startswith("timestamp-"):
            at = dt.datetime.fromisoformat(data)
            return at if at.tzinfo else at.replace(tzinfo=dt.UTC)
        if kind == "uuid":
            return str(uuid.UUID(data))
        if schema.type in ("float", "double") and data in ("nan", "inf", "-inf"):
            return float(data)
    if schema.type in ("float", "double") and type(data) is int:
        return float(data)
    return data
