"""Decodes the records of internal topics: committed offsets, groups, transactions, shares.

The broker's own decoders read them; this module turns the results into plain names and values.
"""

from __future__ import annotations

import dataclasses
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from enum import Enum

from odradek.broker.topics import names as topic_names
from odradek.protocol.wire import encode_uuid

Decoded = Mapping[str, object]
Decoder = Callable[[bytes, bytes | None], Decoded | None]

_TOPIC = re.compile(r"(?P<topic>.+)-[0-9]+(?:\.[0-9a-f]{32}-(?:delete|future))?")
_UUID_BYTES = 16


def decoder_of(directory: str) -> Decoder | None:
    """Return the decoder for records in a partition's directory; None for other topics."""
    found = _TOPIC.fullmatch(directory)
    topic = found["topic"] if found else ""
    if topic == topic_names.CONSUMER_OFFSETS:
        from odradek.broker.groups.records import decode_record as group_record

        return lambda key, value: _decoded(group_record(key, value))
    if topic == topic_names.TRANSACTION_STATE:
        from odradek.broker.transactions.records import decode_record as transaction_record

        return lambda key, value: _decoded(transaction_record(key, value))
    if topic == topic_names.SHARE_GROUP_STATE:
        from odradek.broker.shares.state_records import decode_record as share_record

        return lambda key, value: _decoded(share_record(key, value))
    return None


def sentence(decoded: Decoded) -> str:
    """Return a decoded record as one line."""
    what, *rest = decoded.items()
    return f"{what[1]} {_listed(dict(rest))}"


def _listed(fields: Mapping[str, object]) -> str:
    return " ".join(f"{name}={_short(value)}" for name, value in fields.items())


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({_listed(value)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    if value is None:
        return "null"
    return repr(value) if value == "" or (isinstance(value, str) and " " in value) else str(value)


def _decoded(record: object) -> Decoded | None:
    if record is None:
        return None
    return {"type": type(record).__name__.removesuffix("Record").lower(), **_fields(record)}


def _fields(value: object) -> dict[str, object]:
    if hasattr(value, "_asdict"):
        pairs = value._asdict().items()
    else:
        assert dataclasses.is_dataclass(value)
        pairs = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
    return {name: _plain(name, one) for name, one in pairs}


def _plain(name: str, value: object) -> object:
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bytes):
        is_uuid = len(value) == _UUID_BYTES and name.endswith("id")
        return encode_uuid(value) if is_uuid else b64encode(value).decode()
    if hasattr(value, "_asdict") or dataclasses.is_dataclass(value):
        return _fields(value)
    if isinstance(value, list | tuple):
        return [_plain(name, one) for one in value]
    if isinstance(value, set | frozenset):
        return [_plain(name, one) for one in sorted(value)]
    if isinstance(value, Mapping):
        return {str(key): _plain(name, one) for key, one in value.items()}
    return value
