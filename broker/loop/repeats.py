"""What a request asks for several times: told as often, as by Kafka, as long as that is bounded.

A few bytes that name a large group, a hundred thousand times, would make gigabytes. So an answer
is made once and shared, and a request whose repetitions add too much closes its connection. No
client repeats itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from broker.errors import CloseConnection
from protocol.pacing import paced

A = TypeVar("A")
T = TypeVar("T")

REPEATED_BYTES_MAX = 8 * 1024 * 1024


class Repeats:
    """Counts what repetitions add to one response."""

    def __init__(self) -> None:
        self._size_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Count a repetition. Raises CloseConnection when there are too many."""
        self._size_bytes += size_bytes
        if self._size_bytes > REPEATED_BYTES_MAX:
            raise CloseConnection(
                f"it asks for the same again and again, for over {REPEATED_BYTES_MAX} bytes: "
                "ask once"
            )


def answer_each(
    asked: Iterable[A],
    name: Callable[[A], Hashable],
    answer: Callable[[A], T],
    size_bytes: Callable[[T], int],
    subject: Callable[[A], Hashable] | None = None,
) -> list[T]:
    """Answer all that is asked, what is of one name alike. Raises CloseConnection.

    What differs in its name but is of one subject tells much the same, and counts as repeated.
    """
    repeats = Repeats()
    answers: dict[Hashable, T] = {}
    sizes: dict[Hashable, int] = {}
    subjects: set[Hashable] = set()
    told = []
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
        told.append(answers[key])
    return told
