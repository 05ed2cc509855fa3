"""When Python looks for garbage that refers to itself: not while much is made for a moment.

Python looks through all objects once those that stay have grown by a quarter. What /metrics is
made of, 90,000 objects with 5,000 partitions, does not stay, but looks as if it would; and the
look holds all threads up, for 150 ms and more.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no garbage looked for while the body makes what is dropped at its end.

    Bodies may overlap: the one that began first ends it for all, and leaves things as they were.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
