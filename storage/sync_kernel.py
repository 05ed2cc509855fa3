"""The loop of a thread that makes files durable and never holds the interpreter's lock.

A Python thread that returns from fdatasync() has to wait for the lock, which the event loop has
most of the time, and each hand-over of the lock costs two context switches.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from odradek.protocol.kernel import kernel

# The number of files at a time: a write to a pipe is atomic up to 4 KiB.
FILES_MAX = 1024

Numbers: TypeAlias = npt.NDArray[np.int32]
_INT32S = types.int32[::1]
_EINTR = 4
carray = cast(Any, numba).carray


def _external(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of the C library."""
    return types.ExternalFunction(name, result(*arguments))


_read = _external("read", types.intp, types.intc, types.voidptr, types.uintp)
_write = _external("write", types.intp, types.intc, types.voidptr, types.uintp)
_fdatasync = _external("fdatasync", types.intc, types.intc)
_errno_location = _external("__errno_location", cast(Any, types).CPointer(types.intc))


@kernel(types.void, types.intc, types.intc, _INT32S)
def serve(requests: int, answers: int, numbers: Numbers) -> None:
    """Sync the files named in one pipe, and write the results to another, until the first closes.

    A request is up to FILES_MAX descriptors (int32, in the machine's byte order); the answer has
    as many errors, 0 for success. `numbers` holds one request.
    """
    while True:
        size = _read(requests, numbers.ctypes, 4 * FILES_MAX)
        if size <= 0:
            if size < 0 and carray(_errno_location(), 1)[0] == _EINTR:
                continue
            return
        for at in range(size // 4):
            descriptor = numbers[at]
            numbers[at] = 0
            while _fdatasync(descriptor) != 0:
                error = carray(_errno_location(), 1)[0]
                if error != _EINTR:
                    numbers[at] = error
                    break
        if _write(answers, numbers.ctypes, size) != size:
            return
