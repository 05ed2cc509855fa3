"""Answers that are sent again for the same request as long as they would be the same.

The clients of a cluster ask for the metadata of the same topics in the same bytes, and after a
restart of a broker all at once. The module of an API may have

    stamp(services, listener) -> all but the request that decides an answer, None to make each one

An answer with an equal stamp differs in its correlation id alone. The numbers in a stamp only
grow: an answer that was made while something changed is kept with the stamp of its beginning,
which never comes again. An API whose answers depend on more, such as offsets, has also

    grounds(services, request) -> a function that returns whether this is still the same

which is called for answers that are made at once; those that take a while are not kept.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

from odradek.broker.handlers import Holds
from odradek.protocol.encoding import Chunk

# The metadata of some 50,000 partitions.
_BYTES_MAX = 4 * 1024 * 1024
# The memory of an entry besides its bytes, and that of its grounds for each byte of a question.
_ENTRY_BYTES = 500
_GROUNDS_PER_BYTE = 20
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


class _Answer(NamedTuple):
    body: bytes
    holds: Holds | None


class RememberedAnswers:
    """The answers that were asked for last; the event loop owns them."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._answers: OrderedDict[Question, _Answer] = OrderedDict()
        self.size_bytes = 0

    def find(self, question: Question, correlation_id: int) -> list[Chunk] | None:
        """Return the framed answer to a request, None when it has to be made."""
        found = self._answers.get(question)
        if found is None:
            return None
        body, holds = found
        if holds is not None and not holds():
            self._forget(question)
            return None
        self._answers.move_to_end(question)
        head = _HEAD.pack(len(body) + 4, correlation_id)
        return [head + body] if len(body) <= _COPIED_BYTES_MAX else [head, body]

    def keep(self, question: Question, chunks: list[Chunk], holds: Holds | None = None) -> None:
        """Remember a framed answer, and forget those that were not asked for lately."""
        if question in self._answers:  # asked twice before it was made
            return
        if sum(map(len, chunks)) > self._bytes_max:  # a copy would take the place of all others
            return
        body = b"".join(chunks)[_HEAD.size :]
        self._answers[question] = answer = _Answer(body, holds)
        self.size_bytes += _size(question, answer)
        while self.size_bytes > self._bytes_max:
            self._forget(next(iter(self._answers)))

    def _forget(self, question: Question) -> None:
        self.size_bytes -= _size(question, self._answers.pop(question))


def _size(question: Question, answer: _Answer) -> int:
    asked = len(question.body)
    grounds = asked * _GROUNDS_PER_BYTE if answer.holds is not None else 0
    return asked + grounds + len(answer.body) + _ENTRY_BYTES
