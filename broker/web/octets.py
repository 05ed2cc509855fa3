"""Keys, values and headers as JSON, cut to a bound.

    {"size_bytes": 6291456, "is_cut": true, "text": "the beginning"}

Bytes that are not text are shown as "hex" instead; the latest value of a key also as "base64".

A record also has `headers_left_out`: the number of its headers that are not shown.
"""

from __future__ import annotations

import base64
import codecs

from odradek.cleaner.reading.excerpts import Bounds, Cut, Excerpt

Json = dict[str, object]

# The bound of bytes that are shown on the side: keys in findings, keys of records, headers.
SHOWN_BYTES_MAX = 4096
HEADERS_MAX = 100
_UTF_8 = codecs.getincrementaldecoder("utf-8")


def bounds(value_bytes_max: int) -> Bounds:
    """Return the bounds of a shown record."""
    return Bounds(SHOWN_BYTES_MAX, value_bytes_max, HEADERS_MAX, SHOWN_BYTES_MAX)


def cut(data: bytes) -> Cut:
    """Cut bytes that are shown on the side."""
    return Cut(data[:SHOWN_BYTES_MAX], len(data))


def as_text_or_hex(one: Cut | None) -> Json | None:
    """Show bytes as text if they are text, else in hexadecimal digits."""
    if one is None:
        return None
    text = _text(one)
    shown: Json = {"hex": one.data.hex()} if text is None else {"text": text}
    return {**_size(one), **shown}


def as_text_and_base64(one: Cut | None) -> Json | None:
    """Show bytes as base64, and as text if they are text."""
    if one is None:
        return None
    return {"text": _text(one), "base64": base64.b64encode(one.data).decode(), **_size(one)}


def header_name(name: Cut) -> Json:
    """Show the key of a header; Kafka defines it as text."""
    text = _UTF_8("replace").decode(name.data, final=not name.is_cut)
    return {"key": text, "key_size_bytes": name.size_bytes, "key_is_cut": name.is_cut}


def headers_left_out(one: Excerpt) -> Json:
    """Show the number of a record's headers that are left out."""
    return {"headers_left_out": one.headers_left_out}


def _size(one: Cut) -> Json:
    return {"size_bytes": one.size_bytes, "is_cut": one.is_cut}


def _text(one: Cut) -> str | None:
    try:
        # A character torn by the cut does not mean that the bytes are not text.
        return _UTF_8().decode(one.data, final=not one.is_cut)
    except UnicodeDecodeError:
        return None
