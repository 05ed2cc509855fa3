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
import threading
import uuid
import warnings
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import avro.errors
import avro.io
import avro.name
import avro.schema

from odradek.schemas.avro_reading import Decoder, Reader
from odradek.schemas.errors import SchemaError, reason_of

# How many values a type may have besides those of its bytes, and for each byte.
_FREE_VALUES, _VALUES_PER_BYTE = 64, 8
_VALUES_MAX = 1 << 16
_ENDLESS = 1 << 40
# Filters of warnings are of the whole process.
_WARNINGS = threading.Lock()


class AvroCodec:
    """One schema."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """Parse a schema, after those that it refers to. Raises SchemaError."""
        try:
            self._schema = _parsed(text, references)
            _Sizes().check(self._schema)
        except SchemaError:
            raise
        except Exception as error:  # of the library, of any kind
            raise SchemaError(f"this is not a schema of Avro: {reason_of(error)}") from error
        self._reader = Reader(self._schema)
        self._writer = avro.io.DatumWriter(self._schema)

    def decode(self, data: bytes) -> object:
        """Return a record's data as of JSON. Raises SchemaError."""
        source = io.BytesIO(data)
        try:
            found = as_json(self._reader.read(Decoder(source)))
        except RecursionError as error:
            raise SchemaError("the data is nested too deeply") from error
        except Exception as error:  # the library raises many kinds
            reason = reason_of(error)
            raise SchemaError(f"the data does not follow its schema: {reason}") from error
        if source.tell() < len(data):
            left = len(data) - source.tell()
            raise SchemaError(f"the data does not follow its schema: {left} bytes are left")
        return found

    def encode(self, data: object, name: str | None = None) -> bytes:
        """Return data of JSON as a record; there are no names. Raises SchemaError."""
        if name is not None:
            raise SchemaError("the schema has no messages: it is not of Protobuf")
        target = io.BytesIO()
        try:
            datum = _datum(self._schema, data)
            self._writer.write(datum, avro.io.BinaryEncoder(target))
        except SchemaError:
            raise
        except Exception as error:  # the library raises many kinds
            reason = reason_of(error)
            raise SchemaError(f"the data does not follow the schema: {reason}") from error
        return target.getvalue()


def _parsed(text: str, references: Mapping[str, str]) -> Any:
    names = avro.name.Names()
    with _WARNINGS, warnings.catch_warnings():
        # Of logical types that the library does not know: their data is shown as it is.
        warnings.simplefilter("ignore", avro.errors.AvroWarning)
        for one in references.values():
            avro.schema.make_avsc_object(json.loads(one), names)
        return avro.schema.make_avsc_object(json.loads(text), names)


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
        if values > min(_FREE_VALUES + _VALUES_PER_BYTE * size_bytes, _VALUES_MAX):
            raise SchemaError(f"the schema is refused: {name or schema.type} has too many values")
        if name is not None:
            self._known[name] = values, size_bytes
        return values, size_bytes

    def _sizes(self, schema: Any) -> tuple[int, int]:
        if schema.type in _RECORDS:
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


_FLOATS = frozenset(("float", "double"))
_RECORDS = frozenset(("record", "error"))
_NAMED = _RECORDS | {"enum", "fixed"}
_SMALLEST = {"null": 0, "float": 4, "double": 8}
# Behind the point of a decimal that is written without an exponent.
_DIGITS_MAX = 100


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
    if isinstance(datum, Decimal) and int(datum.as_tuple().exponent) >= -_DIGITS_MAX:
        return f"{datum:f}"
    return str(datum)


def _datum(schema: Any, data: Any) -> object:
    """Return data of JSON as a datum; the writer refuses data that does not fit."""
    kind = schema.type
    if kind == "union":
        return _in_union(schema, data)
    if kind in _RECORDS and isinstance(data, dict):
        names = {field.name for field in schema.fields}
        unknown = sorted(data.keys() - names)
        if unknown:
            raise SchemaError(f"{schema.name} has no field {unknown[0]}")
    found = _with_parts(schema, data, _datum)
    return _leaf(schema, data) if found is None else found


def _with_parts(schema: Any, data: Any, convert: Callable[[Any, Any], object]) -> object:
    """Return a record, an array or a map with its parts converted, None for anything else."""
    kind = schema.type
    if kind in _RECORDS and isinstance(data, dict):
        return {
            field.name: convert(field.type, data[field.name])
            if field.name in data
            else _default(schema, field)
            for field in schema.fields
        }
    if kind == "array" and isinstance(data, list):
        return [convert(schema.items, one) for one in data]
    if kind == "map" and isinstance(data, dict):
        return {key: convert(schema.values, value) for key, value in data.items()}
    return None


def _in_union(schema: Any, data: Any) -> object:
    """Return data in the first type of a union that it fits; an integer stays one if it can."""
    is_integer = type(data) is int
    for one in sorted(schema.schemas, key=lambda one: is_integer and one.type in _FLOATS):
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
    return _of_default(field.type, field.default)


def _of_default(schema: Any, value: Any) -> object:
    """Return a default as a writer wants it; the specification writes bytes as Latin-1."""
    kind = schema.type
    if kind == "union":
        for one in schema.schemas:
            datum = _of_default(one, value)
            if avro.io.validate(one, datum):
                return datum
    found = _with_parts(schema, value, _of_default)
    if found is not None:
        return found
    if kind in _FLOATS and type(value) is int:
        return float(value)
    target = io.BytesIO()
    if kind in ("int", "long") and type(value) is int:
        avro.io.BinaryEncoder(target).write_long(value)
    elif kind == "bytes" and isinstance(value, str):
        avro.io.BinaryEncoder(target).write_bytes(value.encode("latin-1"))
    elif kind == "fixed" and isinstance(value, str):
        target.write(value.encode("latin-1"))
    else:
        return value
    target.seek(0)
    return Reader(schema).read(Decoder(target))  # as a time or a decimal, where it is one


def _decimal(schema: Any, text: str) -> Decimal:
    """Return a decimal with the digits of its schema, none of which may be lost."""
    found = Decimal(text)
    precision, scale = schema.get_prop("precision"), schema.get_prop("scale")
    if not found.is_finite():
        raise SchemaError(f"{text} is no decimal")
    if not found:
        return Decimal((0, (0,), -scale))
    sign, digits, exponent = found.as_tuple()
    more = int(exponent) + scale
    if more < 0 and any(digits[more:]):
        raise SchemaError(f"{text} has more than {scale} digits behind the point")
    if len(digits) + more > precision:
        raise SchemaError(f"{text} has more than {precision} digits")
    unscaled = (*digits, *(0,) * more) if more >= 0 else digits[:more]
    return Decimal((sign, unscaled, -scale))


def _leaf(schema: Any, data: Any) -> object:
    kind = getattr(schema, "logical_type", None) or schema.type
    if isinstance(data, bool) and kind != "boolean":
        raise SchemaError(f"{json.dumps(data)} is no {kind}")
    if kind == "decimal" and not isinstance(data, str):
        raise SchemaError('a decimal is written as a text: "1.50"')
    if isinstance(data, str):
        if kind == "decimal":
            return _decimal(schema, data)
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
        if schema.type in _FLOATS and data in ("nan", "inf", "-inf"):
            return float(data)
    if schema.type in _FLOATS and type(data) is int:
        return float(data)
    return data
