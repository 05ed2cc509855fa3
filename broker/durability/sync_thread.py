"""A thread that makes files durable beside the event loop, without the interpreter's lock.

The two speak through pipes: descriptors go one way, errors the other (storage/sync_kernel.py).
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
    from storage.sync_kernel import Numbers

_INT32 = "i"
# The loop itself, and as many files as it takes at a time; nothing before it is compiled.
_serve: Callable[[int, int, Numbers], None] | None = None
files_max = 0

Answer = Callable[[list[OSError | None]], None]


def use_kernel() -> None:
    """Have such threads from now on."""
    global _serve, files_max
    from storage.sync_kernel import FILES_MAX, serve

    _serve, files_max = serve, FILES_MAX


class SyncThread:
    """Syncs some files at a time; the event loop owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; raises OSError. use_kernel() comes first."""
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
        except (OSError, RuntimeError) as error:  # Python has no other for one thread too many
            for end in ends:
                os.close(end)
            if isinstance(error, OSError):
                raise
            raise OSError(errno.EAGAIN, str(error)) from error
        loop.add_reader(self._answers, self._answered)

    def sync(self, descriptors: Sequence[int], on_done: Answer) -> None:
        """Make files durable, and call with an error for each, None where there is none.

        There may be up to `files_max`, and one call at a time.
        """
        assert self._on_done is None
        assert self._requests is not None
        self._on_done, self._count = on_done, len(descriptors)
        try:
            os.write(self._requests, array(_INT32, descriptors).tobytes())
        except BrokenPipeError:
            self._loop.call_soon(self._answer, [])

    def close(self) -> None:
        """End the thread; nothing is under way."""
        if self._requests is not None:
            os.close(self._requests)
            self._requests = None
            self._thread.join()
            self._loop.remove_reader(self._answers)
            os.close(self._answers)

    def _answered(self) -> None:
        found = array(_INT32)
        found.frombytes(os.read(self._answers, found.itemsize * files_max))
        if not found:  # the thread has ended, which nothing should make it do
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
    # Signals are for the thread that can serve them.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        _serve(requests, answers, np.zeros(files_max, np.int32))
    finally:
        os.close(requests)
        os.close(answers)
