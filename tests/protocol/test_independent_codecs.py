"""Our codecs against two others, generated from Kafka's specs by other people: kio, kafka-python.

What we encode they must decode to the same values, field by field; what they encode of those
values must be our bytes again. What they lack is found out, not listed.
"""

from __future__ import annotations

import datetime
import enum
import importlib
import io
import pkgutil
import uuid
from typing import Any, Protocol

import kio.index
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from odradek.protocol.compiler import decode, encode
from odradek.protocol.messages import AUTHORIZED_OPERATIONS_OMITTED, snake_case
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.schema import Field, fields_of
from tests.protocol.strategies import MESSAGE_VERSIONS, Narrow, Strategy, examples, messages

pytestmark = pytest.mark.slow

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


class Codec(Protocol):
    """Another library's way to read and write a message at a version."""

    name: str

    def has(self, cls: type, version: int) -> bool: ...
    def decode(self, cls: type, version: int, encoded: bytes) -> Any: ...
    def encode(self, value: Any, version: int) -> bytes: ...
    def holds(self, cls: type) -> Narrow: ...


# --- Known differences: values that a library cannot hold, or treats in its own way. --------


def kio_holds(name: str) -> Strategy | None:
    """Narrow to error codes that are in its enum, and times that its Python types can tell.

    It holds times as datetime, or None for -1, and durations as timedelta, which it converts
    by way of seconds in a float.
    """
    if name.endswith("error_code"):
        return st.sampled_from([code.value for code in KioErrorCode])
    if name in ("log_append_time_ms", "retention_time_ms"):
        return st.integers(-1, LAST_DATETIME_MS)
    if name in TIMES_WITHOUT_NONE:
        return st.integers(0, LAST_DATETIME_MS)
    if name in DURATIONS:
        return st.integers(-LAST_DATETIME_MS, LAST_DATETIME_MS)
    return None


def without_error(name: str) -> Strategy | None:
    """Narrow to no error: kafka-python reads ApiVersions with an error as version 0 (KIP-511)."""
    return st.just(0) if name == "error_code" else None


def anything(name: str) -> None:
    """Narrow nothing."""


DURATIONS = (
    "session_lifetime_ms",
    "max_lifetime_ms",
    "renew_period_ms",
    "expiry_time_period_ms",
)
# Those of its types that have no None.
TIMES_WITHOUT_NONE = (
    "transaction_start_time_ms",
    "issue_timestamp_ms",
    "expiry_timestamp_ms",
    "max_timestamp_ms",
)
LAST_DATETIME_MS = 253_402_300_799_999  # the end of the year 9999


class Kio:
    """kio: a class for each version, durations as timedelta, error codes as an enum."""

    name = "kio"
    _KINDS = {"Request": EntityType.request, "Response": EntityType.response}

    def has(self, cls: type, version: int) -> bool:
        name, kind = self._place(cls)
        return kind in schema_name_map.get(name, {}).get(version, {})

    def decode(self, cls: type, version: int, encoded: bytes) -> Any:
        name, kind = self._place(cls)
        value, end = entity_reader(kio.index.load_entity_schema(name, version, kind))(encoded, 0)
        assert end == len(encoded)
        return value

    def encode(self, value: Any, version: int) -> bytes:
        buffer = io.BytesIO()
        entity_writer(type(value))(buffer, value)
        return buffer.getvalue()

    def holds(self, cls: type) -> Narrow:
        return kio_holds

    def _place(self, cls: type) -> tuple[str, Any]:
        for suffix, kind in self._KINDS.items():
            if cls.__name__.endswith(suffix):
                return snake_case(cls.__name__.removesuffix(suffix)), kind
        return snake_case(cls.__name__), EntityType.data


class KafkaPython:
    """kafka-python: one class for all versions, compiled from Kafka's JSON when it is used."""

    name = "kafka-python"

    def __init__(self) -> None:
        self._classes: dict[str, Any] = {}
        for package in ("admin", "consumer", "metadata", "producer"):
            home = importlib.import_module(f"kafka.protocol.{package}")
            for module in pkgutil.iter_modules(home.__path__, home.__name__ + "."):
                self._classes |= vars(importlib.import_module(module.name))

    def has(self, cls: type, version: int) -> bool:
        theirs = self._classes.get(cls.__name__)
        return theirs is not None and version <= theirs.max_version  # it ignores the minimum

    def decode(self, cls: type, version: int, encoded: bytes) -> Any:
        value = self._classes[cls.__name__].decode(encoded, version=version, header=False)
        if hasattr(type(value), "_header"):
            value._header = None  # decoding leaves it unset, and some encoders look at it
        return value

    def encode(self, value: Any, version: int) -> bytes:
        encoded: bytes = value.encode(header=False)
        return encoded

    def holds(self, cls: type) -> Narrow:
        return without_error if cls is ApiVersionsResponse else anything


CODECS: list[Codec] = [Kio(), KafkaPython()]
PAIRS = [
    pytest.param(codec, cls, version, id=f"{codec.name}-{cls.__name__}-v{version}")
    for codec in CODECS
    for cls, version in MESSAGE_VERSIONS
    if codec.has(cls, version)
]


@pytest.mark.parametrize(("codec", "cls", "version"), PAIRS)
def test_both_read_and_write_the_same_bytes(codec: Codec, cls: type, version: int) -> None:
    @examples(2)
    @given(messages(cls, version, codec.holds(cls)))
    def check(value: Any) -> None:
        encoded = encode(value, version)
        theirs = codec.decode(cls, version, encoded)
        assert their_view(theirs, cls, version) == our_view(value, cls, version)
        assert codec.encode(theirs, version) == encoded
        assert decode(cls, version, codec.encode(theirs, version)) == value

    check()


def test_each_request_and_response_is_known_to_one_of_them() -> None:
    requests_and_responses = [
        pair for pair in MESSAGE_VERSIONS if pair[0].__name__.endswith(("Request", "Response"))
    ]
    assert requests_and_responses
    for cls, version in requests_and_responses:
        assert any(codec.has(cls, version) for codec in CODECS), f"{cls.__name__} v{version}"


def our_view(value: Any, cls: type, version: int) -> dict[str, Any]:
    """Turn a value into dicts and lists of what is on the wire."""
    return _view(value, cls, version, lambda item, name: getattr(item, name), lambda item, _: item)


def their_view(value: Any, cls: type, version: int) -> dict[str, Any]:
    """Do the same to their value, led by our declaration."""
    return _view(value, cls, version, _their_attribute, _their_primitive)


def _view(value: Any, cls: type, version: int, attribute: Any, primitive: Any) -> dict[str, Any]:
    def of(field: Field, item: Any) -> Any:
        if isinstance(item, (list, tuple)):
            return [of(field, inner) for inner in item]
        if field.struct is None or item is None:
            return primitive(item, field)
        return _view(item, field.struct, version, attribute, primitive)

    return {
        field.name: of(field, attribute(value, field.name))
        for field in fields_of(cls)
        if version in field.spec.versions
    }


def _their_attribute(value: Any, name: str) -> Any:
    """Find a field: kio drops the unit of durations, kafka-python renames two bit fields."""
    names = [name, name.removesuffix("_ms")]
    if name.endswith("authorized_operations"):
        names.append("authorized_operations")
    return getattr(value, next(found for found in names if hasattr(value, found)))


def _their_primitive(value: Any, field: Field) -> Any:
    """Turn their richer types back into what travels."""
    assert field.primitive is not None or value is None
    if value is None and field.is_array:
        return None
    kind = field.primitive.name if field.primitive else ""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return round(value / MILLISECOND)
    if kind == "uuid":
        return value.bytes if isinstance(value, uuid.UUID) else bytes(16)
    if isinstance(value, datetime.datetime):
        return round((value - EPOCH) / MILLISECOND)
    if isinstance(value, set):
        return int.from_bytes(sum(1 << bit for bit in value).to_bytes(4), signed=True)
    if value is None and kind == "int32":
        return AUTHORIZED_OPERATIONS_OMITTED
    if value is None and kind == "int64":
        return -1
    return bytes(value) if isinstance(value, memoryview) else value
