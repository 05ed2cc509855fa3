"""Exchanges the groups of a cleaning for their rewritten segments, one after the other.

An exchange may take its time, as the upload of a segment to an object store does. It goes on while
the next group is rewritten, and ends before the exchange of that one begins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from odradek.storage.errors import StaleSegments
from odradek.storage.segment import Segment

Propose = Callable[[Sequence[Segment], Sequence[Segment]], Callable[[], object] | None]
"""Exchanges old segments for new ones, or begins to, and returns the function that ends it.

Both raise StaleSegments when the log has changed, and then the log keeps the old ones.
"""


class Exchanges:
    """The exchanges of one cleaning; owned by its thread.

    On leaving, the last one is ended, even after an error, which is the one that is raised.
    """

    def __init__(self, propose: Propose | None) -> None:
        """Without `propose` none is begun."""
        self._propose = propose
        self._end: Callable[[], None] | None = None

    def __enter__(self) -> Exchanges:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._finish()
        else:
            with contextlib.suppress(Exception):
                self._finish()

    def begin(self, old: Sequence[Segment], made: Segment, done: Callable[[], None]) -> None:
        """Begin an exchange, once the one before has ended; `done` is called when it has ended.

        A segment that is refused is removed. Raises StaleSegments.
        """
        assert self._propose is not None
        with _removing(made):
            self._finish()
            complete = self._propose(old, [made])
        if complete is None:
            done()
            return

        def end() -> None:
            with _removing(made):
                complete()
            done()

        self._end = end

    def _finish(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()


@contextlib.contextmanager
def _removing(made: Segment) -> Iterator[None]:
    """Remove a segment that is refused."""
    try:
        yield
    except StaleSegments:
        made.remove()
        raise
