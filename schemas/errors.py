"""The error of schemas, and of records that do not follow them."""

from __future__ import annotations


class SchemaError(Exception):
    """A schema that cannot be had or used, or data that does not follow it; it says why."""
