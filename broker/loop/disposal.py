"""Frees large messages, a few of their items at a time.

A request of 1 MB may decode to 500,000 values, and its response has as many. Python frees all of
them when the last reference to a message goes, which takes 30 ms and more of the event loop. So
separate lists hold the items of long arrays until then, and a paced loop shortens these lists.
Messages themselves are not changed, since other code may still use them.
"""

from __future__ import annotations

from typing import Any

from odradek.protocol.pacing import paced
from odradek.protocol.schema import fields_of

# Shorter arrays are freed with the message or struct that they are in.
_LONG_COUNT = 64

# The fields of a class that are or contain arrays, and the classes of structs in them.
_Arrays = tuple[tuple[str, bool, type | None], ...]
_ARRAYS: dict[type, _Arrays] = {}


def hold_items(message: Any) -> list[list[Any]]:
    """Return lists of the items of each long array of a message, in the order for free()."""
    held: list[list[Any]] = []
    _hold(message, held)
    return held


def free(held: list[list[Any]]) -> None:
    """Free items that were held, outer ones first, while the items inside them are still held."""
    while held:
        items = held.pop()
        for _ in paced(range(0, len(items), _LONG_COUNT)):
            del items[-_LONG_COUNT:]


def _hold(message: Any, held: list[list[Any]]) -> None:
    for name, is_array, struct in _arrays_of(type(message)):
        value = getattr(message, name)
        if not value:
            continue
        if not is_array:
            _hold(value, held)
            continue
        if struct is not None:
            for item in paced(value):
                _hold(item, held)
        if len(value) >= _LONG_COUNT:
            held.append(list(value))


def _arrays_of(cls: type) -> _Arrays:
    found = _ARRAYS.get(cls)
    if found is None:
        _ARRAYS[cls] = found = tuple(
            (one.name, one.is_array, one.struct if one.struct and _arrays_of(one.struct) else None)
            for one in fields_of(cls)
            if one.is_array or (one.struct is not None and _arrays_of(one.struct))
        )
    return found
