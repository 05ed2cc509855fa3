"""Records as lines, which `odradek produce` reads and `odradek consume` prints."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from odradek.dataclass import dataclass

Headers = tuple[tuple[str, bytes | None], ...]

# Other fields that `consume` prints; they are ignored, so that its lines can be produced again.
_IGNORED = frozenset({"topic", "offset", "timestamp_type"})
_KNOWN = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp_ms"}
    | {"key_schema_id", "value_schema_id"}
)
_INT32_MAX, _INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
_TEMPLATE = re.compile(r"%(.)|\\(.)", re.DOTALL)
# Some programs end a line at these characters, too.
_BREAKS = {ord(one): f"\\u{ord(one):04x}" for one in "\x85\u2028\u2029"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


class LineError(Exception):
    """A line is not a record, or a template is wrong; the message names the correct form."""


@dataclass(frozen=True, slots=True)
class Line:
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Encoder(Protocol):
    """Encodes the data of keys and values by schemas."""

    def has(self, name: str) -> bool:
        """Return whether there is a schema for all keys, or all values."""

    def encode(self, name: str, data: object, number: int | None = None) -> bytes:
        """Return data of JSON as a key or value; `number` is its schema where none is for all.

        Raises LineError.
        """


@dataclass(frozen=True, slots=True)
class Data:
    """The data of a key or value, as of JSON, and the id of its schema."""

    schema_id: int
    data: object


@dataclass(frozen=True, slots=True)
class Consumed:
    """A record with its partition and offset, and with data where it follows schemas."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    key_data: Data | None = None
    value_data: Data | None = None


Write = Callable[[Consumed], bytes]


def split_line(line: bytes, separator: bytes | None, null: bytes | None) -> Line:
    """Read key, separator and value, or only a value if `separator` is None.

    A text equal to `null` becomes null: as a value, a tombstone. Raises LineError.
    """
    if separator is None:
        return Line(None, None if line == null else line)
    key, found, value = line.partition(separator)
    if not found:
        raise LineError(f"there is no {_named(separator)} after a key")
    return Line(None if key == null else key, None if value == null else value)


def read_json(line: bytes, encoder: Encoder | None = None) -> Line:
    """Read one JSON object; raises LineError.

    key and value are texts, or data for an encoder; key_base64 and value_base64 bytes; null and a
    missing field mean null. headers are a list of {"key", "value"}, or an object.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f"it is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise LineError('it is not a JSON object, as {"key": "p3", "value": "11"} is')
    unknown = sorted(set(found) - _KNOWN - _IGNORED)
    if unknown:
        raise LineError(f"{unknown[0]!r} is none of {', '.join(sorted(_KNOWN))}")
    return Line(
        _encoded(found, "key", encoder),
        _encoded(found, "value", encoder),
        _headers(found.get("headers") or ()),
        _number(found, "partition", _INT32_MAX),
        _number(found, "timestamp_ms", _INT64_MAX),
    )


def write_json(record: Consumed) -> bytes:
    """Return a JSON object and a newline; bytes that are not text become key_base64 and so on.

    Data of a schema has the schema's id beside it, in key_schema_id and so on.
    """
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        **_field("key", record.key, record.key_data),
        **_field("value", record.value, record.value_data),
        "headers": [{"key": key, **_field("value", value)} for key, value in record.headers],
    }
    return _dumped(found) + b"\n"


def one_line(data: object) -> str:
    """Return data as JSON without spaces, in one line."""
    return _dumped(data, (",", ":")).decode()


def write_value(null: bytes) -> Write:
    """Return a function that writes values as lines."""
    return lambda record: _shown(record.value, record.value_data, null) + b"\n"


def write_key_value(separator: bytes, null: bytes) -> Write:
    """Return a function that writes keys and values as lines."""

    def write(record: Consumed) -> bytes:
        key = _shown(record.key, record.key_data, null)
        return key + separator + _shown(record.value, record.value_data, null) + b"\n"

    return write


def template(text: str, null: bytes) -> Write:
    r"""Return a function that fills in a template like kcat's; raises LineError.

    %t topic, %p partition, %o offset, %T timestamp in milliseconds, %k key, %v or %s value, %K
    and %S their sizes (-1 of a null), %h headers, %% a percent sign; \n, \t, \r, \0, \\.
    """
    parts: list[bytes | Write] = []
    position = 0
    for match in _TEMPLATE.finditer(text):
        parts.append(text[position : match.start()].encode())
        position = match.end()
        letter, escape = match.groups()
        if escape is not None:
            if escape not in _ESCAPES:
                raise LineError(rf"\{escape} is not an escape: they are \n, \t, \r, \0 and \\")
            parts.append(_ESCAPES[escape].encode())
        elif letter == "%":
            parts.append(b"%")
        else:
            parts.append(_filler(letter, null))
    parts.append(text[position:].encode())
    if text.replace("%%", "").endswith("%"):
        raise LineError("it ends with a single %: %% is a percent sign")
    return lambda record: b"".join(
        part if isinstance(part, bytes) else part(record) for part in parts
    )


def _filler(letter: str, null: bytes) -> Write:
    fillers: Mapping[str, Write] = {
        "t": lambda r: r.topic.encode(),
        "p": lambda r: b"%d" % r.partition,
        "o": lambda r: b"%d" % r.offset,
        "T": lambda r: b"%d" % r.timestamp_ms,
        "k": lambda r: _shown(r.key, r.key_data, null),
        "v": lambda r: _shown(r.value, r.value_data, null),
        "s": lambda r: _shown(r.value, r.value_data, null),
        "K": lambda r: b"%d" % (-1 if r.key is None else len(r.key)),
        "S": lambda r: b"%d" % (-1 if r.value is None else len(r.value)),
        "h": lambda r: b",".join(
            key.encode() + b"=" + (null if value is None else value) for key, value in r.headers
        ),
    }
    if letter not in fillers:
        raise LineError(f"%{letter} is none of %{', %'.join(fillers)}, %%")
    return fillers[letter]


def _encoded(found: Mapping[str, Any], name: str, encoder: Encoder | None) -> bytes | None:
    """Return the bytes of a key or value; data, when there is a schema for it."""
    number = _number(found, f"{name}_schema_id", _INT32_MAX)
    data = found.get(name)
    if data is None or found.get(f"{name}_base64") is not None:
        return _bytes(found, name)
    if encoder is not None and (number is not None or encoder.has(name)):
        return encoder.encode(name, data, number)
    if number is not None:
        raise LineError(f"{name}_schema_id needs a schema registry: add --registry URL")
    if not isinstance(data, str):
        raise LineError(
            f"{name} is not a text: write JSON in it as a text, with its quotes, or give its "
            f"schema with --{name}-schema"
        )
    return _bytes(found, name)


def _bytes(found: Mapping[str, Any], name: str) -> bytes | None:
    text, coded = found.get(name), found.get(f"{name}_base64")
    if text is not None and coded is not None:
        raise LineError(f"{name} and {name}_base64 are both given")
    if coded is not None:
        try:
            return base64.b64decode(coded, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise LineError(f"{name}_base64 is not base64") from error
    if text is None:
        return None
    if not isinstance(text, str):
        raise LineError(f"{name} is not a text: write JSON in it as a text, with its quotes")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LineError(f"{name} contains half of a surrogate pair") from error


def _headers(found: Any) -> Headers:
    if isinstance(found, dict):
        found = [{"key": key, "value": value} for key, value in found.items()]
    if not isinstance(found, list | tuple) or not all(isinstance(one, dict) for one in found):
        raise LineError('headers are a list of {"key": "a", "value": "b"}, or an object')
    headers = []
    for one in found:
        if not isinstance(one.get("key"), str):
            raise LineError("the key of a header is not a text")
        if "\0" in one["key"]:
            raise LineError("a header's key contains a NUL, where librdkafka would cut it off")
        headers.append((one["key"], _bytes(one, "value")))
    return tuple(headers)


def _number(found: Mapping[str, Any], name: str, most: int) -> int | None:
    number = found.get(name)
    if number is None or (name == "timestamp_ms" and number == -1):
        return None
    if type(number) is not int or not 0 <= number <= most:
        raise LineError(f"{name} is not a number from 0 to {most}")
    return number


def _shown(octets: bytes | None, data: Data | None, null: bytes) -> bytes:
    """Return a key or value as people read it."""
    if data is not None:
        return one_line(data.data).encode()
    return null if octets is None else octets


def _dumped(data: object, separators: tuple[str, str] | None = None) -> bytes:
    try:
        text = json.dumps(data, ensure_ascii=False, separators=separators)
        return text.translate(_BREAKS).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only ASCII can show
        return json.dumps(data, separators=separators).encode()


def _field(name: str, data: bytes | None, by_schema: Data | None = None) -> dict[str, object]:
    if by_schema is not None:
        return {name: by_schema.data, f"{name}_schema_id": by_schema.schema_id}
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _named(separator: bytes) -> str:
    return "tab" if separator == b"\t" else repr(separator.decode(errors="replace"))
