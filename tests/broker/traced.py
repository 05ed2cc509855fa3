"""How much memory something takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak_bytes(act: Callable[[], object]) -> int:
    """Return the most memory that was held at once while something was done."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
