"""Long work on the event loop, a slice of time at a time.

A loop whose length a client decides goes over `paced(items)`:

    for topic in paced(request.topics):
        answer(topic)

A Worker runs such code in slices. Between two items, once the slice is over, the code stands
still, in the middle of its loop, and the event loop serves others until it lets the Worker go on:

    worker.begin(function, slice_s) -> whether it has ended
    worker.go_on(slice_s) -> whether it has ended         } until it has
    worker.take() -> what the function returned
    worker.give_up(): nothing more is run

Anywhere else, in a thread or on the loop's own stack, paced(items) is items. So the code around
such a loop must be right when others change the state that they share with it between two items,
as between two requests: handlers have such loops, and the helpers of handlers; a coordinator's
decisions and stored changes have none, nor has anything that they call. The loops of codecs, which
both call, are paced within `coding` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")

# A parameter of functions that handlers and decisions call: handlers pass `paced`.
Pace = Callable[[Iterable[Any]], Iterable[Any]]

# Shorter loops end before it pays to look at the clock.
PACED_MIN = 16


class Worker(greenlet):
    """Runs one function after the other, each in slices; made and used by one thread."""

    def __init__(self) -> None:
        super().__init__()
        # Where everything else runs.
        self._outside = getcurrent()
        self._until_s = 0.0
        self._function: Callable[[], Any] | None = None
        # Whether codecs are paced, too.
        self.is_coding = False
        self._result: Any = None
        self._error: BaseException | None = None

    def begin(self, function: Callable[[], Any], slice_s: float) -> bool:
        """Call a function, for a slice of time to begin with; tell whether it has ended."""
        assert self._function is None, "the one before has ended"
        self._function = function
        return self.go_on(slice_s)

    def go_on(self, slice_s: float) -> bool:
        """Give the function another slice; tell whether it has ended."""
        self._until_s = perf_counter() + slice_s
        self.switch()
        return self._function is None

    def take(self) -> Any:
        """Return what the function returned, once; raises what it raised."""
        result, error = self._result, self._error
        self._result = self._error = None
        if error is not None:
            raise error
        return result

    def give_up(self) -> None:
        """Have the function that stands still end where it is, or none begin any more.

        A worker that is never given up is never freed: it refers to itself.
        """
        self.throw()

    def run(self) -> None:
        """Call what is given, for ever: a stack of its own is made once, not for each function."""
        wait = self._outside.switch
        while True:
            function = self._function
            assert function is not None
            try:
                self._result = function()
            except Exception as error:
                self._error = error
            self._function = function = None
            wait()

    def pace(self, items: Iterable[T]) -> Iterator[T]:
        """Yield each item, and let others go on between two when the slice is over.

        A coroutine that has awaited in its loop may go on in another worker, in a slice of that.
        """
        worker = self
        for item in items:
            yield item
            if perf_counter() > worker._until_s:
                current = getcurrent()
                if current is worker:
                    worker._outside.switch()
                elif isinstance(current, Worker):
                    worker = current
                    if perf_counter() > worker._until_s:
                        worker._outside.switch()


def paced(items: Iterable[T]) -> Iterable[T]:
    """Return what to iterate over where a loop may be long: see the module."""
    worker = getcurrent()
    return worker.pace(items) if isinstance(worker, Worker) else items


def sorted_by(
    items: Iterable[T], key: Callable[[T], Any], pace: Callable[[Iterable[T]], Iterable[T]] = paced
) -> list[T]:
    """Sort as `sorted` does, with the keys computed in a paced loop."""
    given = list(items)
    keys = [key(item) for item in pace(given)]
    return [given[at] for at in sorted(range(len(given)), key=keys.__getitem__)]


def paced_in_codec(items: Iterable[T]) -> Iterable[T]:
    """Do as `paced` within `coding`; anywhere else return the items."""
    worker = getcurrent()
    return worker.pace(items) if isinstance(worker, Worker) and worker.is_coding else items


def coding(code: Callable[..., T], *arguments: object) -> T:
    """Decode or encode one message of a client, with long arrays in slices."""
    worker = getcurrent()
    if not isinstance(worker, Worker):
        return code(*arguments)
    worker.is_coding = True
    try:
        return code(*arguments)
    finally:
        worker.is_coding = False
