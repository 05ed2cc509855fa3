"""The JSON object in the body of a request for an action."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aiohttp import web

from odradek.broker.web.requests import Problem

_ARRIVES_S = 10.0
_INT64_MAX = (1 << 63) - 1
_KINDS: Mapping[type, str] = {
    str: "a text",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


class Body:
    """The members of a request's object; raises Problem for unknown and malformed ones."""

    def __init__(self, members: Mapping[str, Any], known: Collection[str]) -> None:
        self._members = members
        for name in members:
            if name not in known:
                raise Problem(400, f"{name!r} is not a member: use {', '.join(known)}")

    def text(self, name: str) -> str:
        """Return a text that must be there."""
        found = self.optional_text(name)
        if not found:
            raise Problem(400, f"{name} is missing: give a text")
        return found

    def optional_text(self, name: str) -> str | None:
        """Return a text; None when it is null or missing."""
        found = self._of(name, str)
        return None if found is None else _utf_8(name, found)

    def number(self, name: str, least: int = 0, most: int = _INT64_MAX) -> int | None:
        """Return a whole number; None when it is null or missing."""
        found = self._members.get(name)
        if found is None:
            return None
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
            raise Problem(400, f"{name} must be a whole number from {least} to {most}")
        return found

    def flag(self, name: str) -> bool:
        """Return whether a member is true; it is false when it is missing."""
        return bool(self._of(name, bool))

    def texts(self, name: str) -> Sequence[str]:
        """Return a list of texts, empty when it is missing."""
        found = self._of(name, list) or []
        if not all(isinstance(one, str) for one in found):
            raise Problem(400, f"{name} must be a list of texts")
        return [_utf_8(name, one) for one in found]

    def numbers(self, name: str) -> Sequence[int]:
        """Return a list of numbers of partitions, empty when it is missing."""
        found = self._of(name, list) or []
        if not all(type(one) is int and 0 <= one < 1 << 31 for one in found):
            raise Problem(400, f"{name} must be a list of partitions' numbers")
        return list(found)

    def named_texts(self, name: str) -> Mapping[str, str]:
        """Return texts by name, empty when they are missing."""
        found = self._of(name, dict) or {}
        if not all(isinstance(one, str) for one in found.values()):
            raise Problem(400, f"{name} must be an object of texts")
        return {_utf_8(name, key): _utf_8(name, value) for key, value in found.items()}

    def _of(self, name: str, kind: type) -> Any:
        found = self._members.get(name)
        if found is not None and not isinstance(found, kind):
            raise Problem(400, f"{name} must be {_KINDS[kind]}")
        return found


def _utf_8(name: str, text: str) -> str:
    """Return a text that Kafka's protocol can carry: JSON may have half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Problem(400, f"{name} has a character that UTF-8 cannot write") from error
    return text


async def read_body(request: web.Request, known: Collection[str], bytes_max: int) -> Body:
    """Read the object of a request. Raises Problem."""
    if "Content-Encoding" in request.headers:
        raise Problem(415, "the body must not be compressed")
    try:
        async with asyncio.timeout(_ARRIVES_S):
            data = await request.read()
    except TimeoutError as error:
        raise Problem(408, f"the body did not arrive within {_ARRIVES_S:g} s") from error
    if len(data) > bytes_max:
        raise Problem(413, f"the body has {len(data):,} bytes: {bytes_max:,} are allowed")
    try:
        members = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from error
    if not isinstance(members, dict):
        raise Problem(400, "the body must be a JSON object")
    return Body(members, known)
