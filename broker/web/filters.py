"""Filters of records: an expression in CEL, the Common Expression Language, for each record.

    value.price > 10 && key.startsWith("p")
    has(value.customer) && value.customer.city in ["Prague", "Brno"]
    timestamp > timestamp("2026-11-28T00:00:00Z") && headers.origin != "test"

    key         text, bytes if it is no UTF-8 or has a NUL, null without one; data by its schema
    value       data by its schema or of JSON, else text, bytes, null for a tombstone
    headers     the value of each name, as text or bytes; the last one of a name
    partition, offset, timestamp

An expression has no loops (all, exists, exists_one, filter, map) and no regular expressions
(matches), so its time grows with its own length times the record's, and no further. A record for
which it fails, since a field is missing or has another type, does not pass; such failures are
counted. https://cel.dev has the language.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import re
import time
from typing import TYPE_CHECKING, Any

from odradek.broker.web.octets import bounds
from odradek.broker.web.requests import Problem
from odradek.cleaner.reading.excerpts import RecordPlace

if TYPE_CHECKING:
    from odradek.schemas.records import Codecs, Decoded

LENGTH_MAX = 1000
# A larger key or value is not looked into.
DATA_BYTES_MAX = 64 << 10
# Data that is nested deeper is a text. The library calls itself for each level, and its stack may
# overflow: json.loads of Python 3.11 stops at a thousand levels, that of 3.14 at some 30,000.
DEPTH_MAX = 100
# The registry and the schemas, which may be many, take no more time of a request.
DECODING_S = 10.0
_CONFIG = """
name: records
stdlib:
  exclude_macros: [all, exists, exists_one, filter, map]
  exclude_functions:
  - name: matches
"""
_PLACE = re.compile(r"ERROR: <input>:\d+:(\d+): ([^\n]*)")
_INT64 = range(-(1 << 63), 1 << 63)
_DIGITS_MAX = 19


class RecordFilter:
    """One expression; a thread at a time asks it."""

    def __init__(self, text: str, codecs: Codecs | None = None) -> None:
        """Compile an expression. Raises Problem.

        With `codecs`, keys and values that have a schema are decoded.
        """
        if len(text) > LENGTH_MAX:
            raise Problem(400, f"the filter has {len(text)} characters: at most {LENGTH_MAX}")
        self._codecs = codecs
        self._compiled, self._error = _compile(text)
        # Only the parts that may be used are read.
        self._parts = [name for name in ("key", "value", "headers") if name in text]
        self._decoding_s = 0.0
        self.failed = 0
        self.first_failure: str | None = None

    def passes(self, partition: int, place: RecordPlace) -> bool:
        """Return whether the expression holds for a record."""
        data: dict[str, object] = {
            "partition": partition,
            "offset": place.offset,
            "timestamp": dt.datetime.fromtimestamp(0, dt.UTC)
            + dt.timedelta(milliseconds=max(place.timestamp, 0)),
        }
        try:
            for name in self._parts:
                data[name] = getattr(self, f"_{name}")(place)
            result = self._compiled.eval(data=data)
        except Exception as error:  # the library raises many kinds
            self._fail(partition, place, str(error))
            return False
        found = result.value()
        if isinstance(found, bool):
            return found
        is_error = result.type() == self._error
        reason = str(found) if is_error else f"it returns {found}, not true or false"
        self._fail(partition, place, reason)
        return False

    def _fail(self, partition: int, place: RecordPlace, reason: str) -> None:
        self.failed += 1
        if self.first_failure is None:
            reason = re.sub(r"^[A-Z_]+: ", "", " ".join(reason.split()))
            self.first_failure = f"partition {partition} offset {place.offset}: {reason[:300]}"

    def _key(self, place: RecordPlace) -> object:
        return self._data(place, place.key_position, place.key_length, is_json=False)

    def _value(self, place: RecordPlace) -> object:
        return self._data(place, place.value_position, place.value_length, is_json=True)

    def _headers(self, place: RecordPlace) -> object:
        found = place.excerpt(bounds(0)).headers
        return {
            name.data.decode(errors="replace"): None if value is None else _text(value.data)
            for name, value in found
        }

    def _data(self, place: RecordPlace, position: int, length: int, *, is_json: bool) -> object:
        if length < 0:
            return None
        if length > DATA_BYTES_MAX:
            raise ValueError(f"{length} bytes are not looked into: at most {DATA_BYTES_MAX}")
        octets = place.section[position : position + length]
        decoded = self._decoded(octets)
        if decoded is not None:
            if decoded.problem is not None:
                raise ValueError(decoded.problem)
            if _is_deep(decoded.data):
                raise ValueError(f"the data is nested more than {DEPTH_MAX} deep")
            _refuse_nul(json.dumps(decoded.data).encode())
            return decoded.data
        if is_json and octets[:1] in _BEGIN_JSON:
            try:
                data = json.loads(octets, parse_int=_number)
            except (ValueError, RecursionError):
                return _text(octets)
            if _is_deep(data):
                return _text(octets)
            _refuse_nul(octets)
            return data
        return _text(octets)

    def _decoded(self, octets: bytes) -> Decoded | None:
        if self._codecs is None:
            return None
        if self._decoding_s > DECODING_S:
            raise ValueError(f"schemas have taken more than {DECODING_S:g} s")
        begun_s = time.monotonic()
        try:
            return self._codecs.decode(octets)
        finally:
            self._decoding_s += time.monotonic() - begun_s


_BEGIN_JSON = frozenset(bytes([one]) for one in b'{["-0123456789tfn \t\r\n')


def _number(digits: str) -> int | float:
    """Return a whole number, as a float if it is larger than CEL's."""
    if len(digits) <= _DIGITS_MAX + 1 and int(digits) in _INT64:
        return int(digits)
    return float(digits)


def _text(octets: bytes) -> str | bytearray:
    # The library ends texts and `bytes`, but not a bytearray, at a NUL.
    if b"\0" in octets:
        return bytearray(octets)
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return bytearray(octets)


def _is_deep(data: object) -> bool:
    """Return whether lists and maps are nested more than DEPTH_MAX deep."""
    level = [data]
    for _ in range(DEPTH_MAX + 1):
        inner: list[object] = []
        for one in level:
            if isinstance(one, (list, dict)):
                inner += one.values() if isinstance(one, dict) else one
        if not inner:
            return False
        level = inner
    return True


def _refuse_nul(text: bytes) -> None:
    """Raise ValueError for JSON with a NUL in a text: the library would compare its beginning."""
    if b"\\u0000" in text:
        raise ValueError("the data has a NUL character")


def _compile(text: str) -> tuple[Any, Any]:
    """Return the compiled expression, and the type of a failure. Raises Problem."""
    try:
        from cel_expr_python import cel
    except ImportError as error:
        need = "filters need the extra `console`: pip install odradek[console]"
        raise Problem(501, need) from error
    try:
        compiled = _environment().compile(text)
    except Exception as error:  # the library raises many kinds
        place = _PLACE.search(str(error))
        reason = f"at character {place[1]}: {place[2]}" if place else str(error)
        raise Problem(400, f"the filter is not an expression of CEL, {reason}") from error
    kind = compiled.return_type()
    if kind not in (cel.Type.BOOL, cel.Type.DYN):
        raise Problem(400, f"the filter returns {kind.name()}: it must return true or false")
    return compiled, cel.Type.ERROR


@functools.cache
def _environment() -> Any:
    from cel_expr_python import cel

    kinds = cel.Type
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(_CONFIG),
        variables={
            "key": kinds.DYN,
            "value": kinds.DYN,
            "headers": kinds.Map(kinds.STRING, kinds.DYN),
            "partition": kinds.INT,
            "offset": kinds.INT,
            "timestamp": kinds.TIMESTAMP,
        },
    )
