"""Queries for many keys at once, in the SQL that all engines share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from odradek.broker.metadata.statements import Connection, Value

_KEYS_MAX = 512


def query_for(
    connection: Connection, query: str, keys: Collection[Sequence[Value]]
) -> list[tuple[Any, ...]]:
    """Return the rows of a query that joins "(KEYS)", a table of different keys.

    Its columns are column1, column2 and so on. A long list of keys is split in their order.
    SQLite uses an index for a join with a list, but not for IN with a list of pairs.
    """
    ordered, found = sorted(keys), []  # type: ignore[type-var]
    for begin in range(0, len(ordered), _KEYS_MAX):
        part = ordered[begin : begin + _KEYS_MAX]
        # Lists have few lengths, since the text of each statement is kept. No NULL is joined.
        count, width = 1 << (len(part) - 1).bit_length(), len(part[0])
        values = [value for key in part for value in key]
        values += [None] * (count * width - len(values))
        listed = ", ".join([f"({', '.join('?' * width)})"] * count)
        found += connection.execute(query.replace("(KEYS)", f"(VALUES {listed})"), values)
    return found
