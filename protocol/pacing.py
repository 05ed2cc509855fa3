"""Long work on the event loop, a slice of time at a time.

A loop whose length a client decides iterates over `paced(items)`:

    for topic in paced(request.topics):
        answer(topic)

A Worker runs such code in slices. Between two items, once the slice is over, the code stops in
the middle of its loop, and the event loop serves others until it lets the Worker continue:

    worker.begin(function, slice_s) -> whether it has ended
    worker.go_on(slice_s) -> whether it has ended         } until it has
    worker.take() -> the function's result
    worker.give_up(): nothing more is run

Anywhere else, in a thread or on the loop's own stack, paced(items) is items. So the code around
such a loop must be correct when other code changes shared state between two items, as it may
between two requests. Handlers and their helpers have such loops. A coordinator's decisions and
stored changes have none, nor does any code that they call. Both call codecs, whose loops are
paced within `coding` alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from time import perf_counter
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")

# A parameter of functions that handlers and decisions call: handlers pass `paced`.
Pace = Callable[[Iterable[Any]], Iterable[Any]]
# The key of `sorted`; None stands for the items themselves.
_Key = Callable[[Any], Any] | None

# Sorts in pieces: _RUN_COUNT items are sorted at once, in less than a millisecond. Then
# _MERGED_RUNS lists are merged at once, _HEAD_COUNT items of each at a time. Two lists at a time
# would take twice as long.
_RUN_COUNT = 1024
_MERGED_RUNS = 16
_HEAD_COUNT = 64
# Shorter loops end before a look at the clock pays.
PACED_MIN = 16


class Worker(greenlet):
    """Runs one function after the other, each in slices; one thread creates and uses it."""

    def __init__(self) -> None:
        super().__init__()
        # All other code runs in this greenlet.
        self._outside = getcurrent()
        self._until_s = 0.0
        self._function: Callable[[], Any] | None = None
        # Whether codecs are paced, too.
        self.is_coding = False
        self._result: Any = None
        self._error: BaseException | None = None

    def begin(self, function: Callable[[], Any], slice_s: float) -> bool:
        """Call a function, at first for one slice of time; return whether it has ended."""
        assert self._function is None, "the one before has ended"
        self._function = function
        return self.go_on(slice_s)

    def go_on(self, slice_s: float) -> bool:
        """Give the function another slice; return whether it has ended."""
        self._until_s = perf_counter() + slice_s
        self.switch()
        return self._function is None

    def take(self) -> Any:
        """Return the function's result, once, or raise its error."""
        result, error = self._result, self._error
        self._result = self._error = None
        if error is not None:
            raise error
        return result

    def give_up(self) -> None:
        """End the stopped function where it is, or begin no other.

        A worker that is never given up is never freed: it refers to itself.
        """
        self.throw()

    def run(self) -> None:
        """Call each function that is given, for ever: all functions share one stack."""
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
        """Yield each item, and let others run between two when the slice is over.

        A coroutine that has awaited in its loop may continue in another worker, in its slice.
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
    """Return the items, in slices where the loop runs in a Worker: see the module."""
    worker = getcurrent()
    return worker.pace(items) if isinstance(worker, Worker) else items


def paced_if_many(items: Collection[T]) -> Iterable[T]:
    """Do as `paced`; a request with few items pays no more than for their number."""
    return items if len(items) < PACED_MIN else paced(items)


def unpaced(items: Iterable[T]) -> Iterable[T]:
    """Return the items: the `pace` of a loop that must run in one piece."""
    return items


def paced_sorted(
    items: Iterable[T], key: Callable[[T], Any] | None = None, pace: Pace = paced
) -> list[T]:
    """Return the result of `sorted`; where loops are paced, sort in pieces."""
    given: list[Any] = list(items)
    if pace(given) is given:
        return sorted(given, key=key)
    if key is None:
        return _sorted_in_pieces(given, None, pace)
    keys = [key(item) for item in pace(given)]
    order = _sorted_in_pieces(range(len(given)), keys.__getitem__, pace)
    return [given[at] for at in pace(order)]


def _sorted_in_pieces(given: Sequence[Any], key: _Key, pace: Pace) -> list[Any]:
    """Sort runs of items, and merge some of them at a time until one is left."""
    starts = range(0, len(given), _RUN_COUNT)
    runs = [sorted(given[at : at + _RUN_COUNT], key=key) for at in pace(starts)]
    while len(runs) > 1:
        some = (runs[at : at + _MERGED_RUNS] for at in range(0, len(runs), _MERGED_RUNS))
        runs = [[*chain.from_iterable(pace(_merged(ones, key)))] for ones in some]
    return runs[0] if runs else []


def _merged(runs: list[list[Any]], key: _Key) -> Iterator[list[Any]]:
    """Yield the items of sorted lists in order, some at a time; equal ones by their lists.

    Of the next items of each list, those up to the least of the lists' last ones come first.
    """
    starts = [0] * len(runs)
    while True:
        heads = [run[at : at + _HEAD_COUNT] for run, at in zip(runs, starts, strict=True)]
        is_cut = [len(run) > at + _HEAD_COUNT for run, at in zip(runs, starts, strict=True)]
        cut = [rank for rank, is_one in enumerate(is_cut) if is_one]
        if not cut:
            yield sorted(chain.from_iterable(heads), key=key)
            return
        lasts: dict[int, Any] = {
            rank: heads[rank][-1] if key is None else key(heads[rank][-1]) for rank in cut
        }
        first = min(cut, key=lasts.__getitem__)
        for rank, head in enumerate(heads):
            # That list may have more items equal to its last; those of later lists come after.
            bisect = bisect_right if rank <= first else bisect_left
            del head[bisect(head, lasts[first], key=key) :]
            starts[rank] += len(head)
        # `sorted` finds the sorted runs, and compares each item little more than once.
        yield sorted(chain.from_iterable(heads), key=key)


def paced_in_codec(items: Iterable[T]) -> Iterable[T]:
    """Do as `paced` within `coding`; anywhere else return the items."""
    worker = getcurrent()
    return worker.pace(items) if isinstance(worker, Worker) and worker.is_coding else items


def coding(code: Callable[..., T], *arguments: object) -> T:
    """Decode or encode one message of a client, in slices where arrays are long."""
    worker = getcurrent()
    if not isinstance(worker, Worker):
        return code(*arguments)
    worker.is_coding = True
    try:
        return code(*arguments)
    finally:
        worker.is_coding = False
