"""A thread that syncs files beside the event loop, without the interpreter's lock.

Two pipes connect them: descriptors go one way, errors the other (storage/sync_kernel.py).
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.storage.sync_kernel import Numbers

_INT32 = "i"
# The thread's compiled loop, and the most files it takes at a time; unset before use_kernel().
_serve: Callable[[int, int, Numbers], None] | None = None
files_max = 0

Answer = Callable[[list[OSError | None]], None]


def use_kernel() -> None:
    """Load the compiled loop, so that such threads can be started."""
    global _serve, files_max
    from odradek.storage.sync_kernel import FILES_MAX, serve

    _serve, files_max = serve, FILES_MAX


class SyncThread:
    """Syncs some files at a time; the event loop owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread, after use_kernel(). Raises OSError."""
        self._loop = loop
        self._requests: int | None
        self._on_done: Answer | None = None
        self._count = 0
        ends: list[int] = []
        try:
            ends += os.pipe2(os.O_CLOEXEC)
            ends += os.pipe2(os.O_CLOEXEC)
            requests, self._requests, self._answers, answers = ends
            os.set_blocking(self._answers, False)
            self._thread = threading.Thread(
                target=_run, args=(requests, answers), name="sync", daemon=True
            )
            self._thread.start()
        except (OSError, RuntimeError) as error:  # Python raises RuntimeError for want of a thread
            for end in ends:
                os.close(end)
            if isinstance(error, OSError):
                raise
            raise OSError(errno.EAGAIN, str(error)) from error
        loop.add_reader(self._answers, self._answered)

    def sync(self, descriptors: Sequence[int], on_done: Answer) -> None:
        """Sync files, and call `on_done` with an error for each, None where there is none.

        It takes up to `files_max` files, and one call at a time.
        """
        assert self._on_done is None
        assert self._requests is not None
        self._on_done, self._count = on_done, len(descriptors)
        try:
            os.write(self._requests, array(_INT32, descriptors).tobytes())
        except BrokenPipeError:
            self._loop.call_soon(self._answer, [])

    def close(self) -> None:
        """End the thread; no sync may be under way."""
        if self._requests is not None:
            os.close(self._requests)
            self._requests = None
            self._thread.join()
            self._loop.remove_reader(self._answers)
            os.close(self._answers)

    def _answered(self) -> None:
        found = array(_INT32)
        found.frombytes(os.read(self._answers, found.itemsize * files_max))
        if not found:  # the thread has ended, which is not expected
            self._loop.remove_reader(self._answers)
        self._answer(found.tolist())

    def _answer(self, numbers: list[int]) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            errors = numbers or [errno.EIO] * self._count
            on_done([OSError(one, os.strerror(one)) if one else None for one in errors])


def _run(requests: int, answers: int) -> None:
    import numpy as np

    assert _serve is not None
    # Signals must go to the main thread, which handles them.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        _serve(requests, answers, np.zeros(files_max, np.int32))
    finally:
        os.close(requests)
        os.close(answers)
