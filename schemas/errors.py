"""The error of schemas, and of records that do not follow them."""

from __future__ import annotations

_REASON_MAX = 300


class SchemaError(Exception):
    """A schema that cannot be had or used, or data that does not follow it; it says why."""


class SchemaUnavailable(SchemaError):
    """A schema that could not be read this time, and perhaps can the next time."""


def reason_of(error: Exception) -> str:
    """Return the text of a library's error in one line, and shortened."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _REASON_MAX else f"{text[:_REASON_MAX]}…"
