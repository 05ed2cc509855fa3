"""Frees large messages, some of their items at a time.

A request of 1 MB may decode to 500,000 values, and its response has as many. Python frees all of
them when a message's last user is done with it, which takes 30 ms and more of the event loop. So
the items of long arrays are held by lists of their own meanwhile, and those are shortened in a
paced loop. Nothing is changed that others may still have.
"""

from __future__ import annotations

from typing import Any

from protocol.pacing import paced
from protocol.schema import fields_of

# What is shorter is freed with what it is in.
_LONG_COUNT = 64

# The fields of a class that are arrays or have some inside, and the classes of structs in them.
_Arrays = tuple[tuple[str, bool, type | None], ...]
_ARRAYS: dict[type, _Arrays] = {}


def hold_items(message: Any) -> list[list[Any]]:
    """Return the items of each long array of a message, in an order in which to hand them on."""
    held: list[list[Any]] = []
    _hold(message, held)
    return held


def free(held: list[list[Any]]) -> None:
    """Let go of items that were held, outer ones first: those inside are still held by then."""
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
