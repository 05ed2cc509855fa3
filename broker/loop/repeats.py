"""Repeated names in a request: as in Kafka each is answered, but their size is bounded.

A few bytes that name a large group, a hundred thousand times, would make gigabytes. So an answer
is built once and shared, and a request whose repetitions add too much closes its connection. No
real client repeats names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from odradek.broker.errors import CloseConnection
from odradek.protocol.pacing import paced

A = TypeVar("A")
T = TypeVar("T")

REPEATED_BYTES_MAX = 8 * 1024 * 1024


class Repeats:
    """Counts the bytes that repetitions add to one response."""

    def __init__(self) -> None:
        self._size_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Count the bytes of a repetition. Raises CloseConnection when they are too many."""
        self._size_bytes += size_bytes
        if self._size_bytes > REPEATED_BYTES_MAX:
            raise CloseConnection(
                "the request names the same things again and again, for over "
                f"{REPEATED_BYTES_MAX} bytes: name each once"
            )


def answer_each(
    asked: Iterable[A],
    name: Callable[[A], Hashable],
    answer: Callable[[A], T],
    size_bytes: Callable[[T], int],
    subject: Callable[[A], Hashable] | None = None,
) -> list[T]:
    """Return an answer for each item; items of one name share it. Raises CloseConnection.

    Items of different names but one subject have much the same answer, and count as repeated.
    """
    repeats = Repeats()
    answers: dict[Hashable, T] = {}
    sizes: dict[Hashable, int] = {}
    subjects: set[Hashable] = set()
    results = []
    for one in paced(asked):
        key = name(one)
        about = key if subject is None else subject(one)
        if key not in answers:
            answers[key] = answer(one)
        if about in subjects:
            if key not in sizes:
                sizes[key] = size_bytes(answers[key])
            repeats.add(sizes[key])
        subjects.add(about)
        results.append(answers[key])
    return results
