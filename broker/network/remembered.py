"""Answers that are sent again for the same request as long as they would be the same.

The clients of a cluster ask for the metadata of the same topics in the same bytes, and after a
restart of a broker all at once. The module of an API may have

    stamp(services, listener) -> all but the request that decides an answer, None to make each one

An answer with an equal stamp differs in its correlation id alone. The numbers in a stamp only
grow: an answer that was made while something changed is kept with the stamp of its beginning,
which never comes again.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from odradek.protocol.encoding import Chunk

# The metadata of some 50,000 partitions.
_BYTES_MAX = 4 * 1024 * 1024
# The memory of an entry besides its bytes.
_ENTRY_BYTES = 500
# Up to this size a copy costs less than a second piece to send.
_COPIED_BYTES_MAX = 16 * 1024

_HEAD = struct.Struct(">ii")


class Question(NamedTuple):
    """The bytes of a request and all else that its answer depends on."""

    api_key: int
    api_version: int
    listener: str
    body: bytes
    stamp: Hashable


class RememberedAnswers:
    """The answers that were asked for last; the event loop owns them."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._answers: OrderedDict[Question, bytes] = OrderedDict()
        self.size_bytes = 0

    def find(self, question: Question, correlation_id: int) -> list[Chunk] | None:
        """Return the framed answer to a request, None when it has to be made."""
        body = self._answers.get(question)
        if body is None:
            return None
        self._answers.move_to_end(question)
        head = _HEAD.pack(len(body) + 4, correlation_id)
        return [head + body] if len(body) <= _COPIED_BYTES_MAX else [head, body]

    def keep(self, question: Question, chunks: list[Chunk]) -> None:
        """Remember a framed answer, and forget those that were not asked for lately."""
        if question in self._answers:  # asked twice before it was made
            return
        if sum(map(len, chunks)) > self._bytes_max:  # a copy would take the place of all others
            return
        body = b"".join(chunks)[_HEAD.size :]
        self._answers[question] = body
        self.size_bytes += _size(question, body)
        while self.size_bytes > self._bytes_max:
            self.size_bytes -= _size(*self._answers.popitem(last=False))


def _size(question: Question, body: bytes) -> int:
    return len(question.body) + len(body) + _ENTRY_BYTES
