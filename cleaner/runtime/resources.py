"""The resources with which the cleaner's threads work; the pool makes them once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from odradek.dataclass import dataclass
from odradek.storage.files import FileSystem


@dataclass(frozen=True, slots=True)
class Resources:
    """Files, time, randomness, the allowed rate, kernels: shared by all threads that clean."""

    fs: FileSystem
    clock_ms: Callable[[], int]
    random_below: Callable[[int], int]  # hard to guess
    charge: Callable[[int], float]  # takes the bytes of a read or write; returns seconds to wait
    stopping: threading.Event
    load_kernels: Callable[[], None]  # called in each thread before it cleans
