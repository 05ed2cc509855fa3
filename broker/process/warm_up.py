"""Loads the compiled kernels; `python -m broker.process.warm_up` compiles them into the cache.

The broker loads those of the log in a thread once the plain twins have had something to do, and
those of the cleaner when there is something to clean. Until then the plain twins serve, and the
compiler that comes with the first of them is not there. Its code is given back while they load.
"""

from __future__ import annotations

import gc
import importlib
import logging
import threading
import time
from collections.abc import Callable

from broker.process.code_memory import compiler_given_back

logger = logging.getLogger(__name__)

# Importing it compiles or loads all kernels of the cleaner.
_CLEANER = "cleaner.passes.clean"
_LOOKS = "protocol.record_kernels"
# So many records are checked before. One costs a plain twin 2 us more than a kernel, and loading
# takes half a second of a processor, in which a round trip takes twice as long, one in a hundred
# 5 ms: it is put off until a tenth of that is spent, which who sends one at a time may never do.
RECORDS_BEFORE = 25_000
# What a sync costs more by a thread that needs the interpreter, in records: some 20 us.
_RECORDS_A_SYNC = 10
_loading = threading.Lock()
_loaded: set[str] = set()


def warm_up() -> None:
    """Load or compile every kernel, and have the log use them."""
    load_log_kernels()
    load_cleaner_kernels()
    load_look_kernels()


def load_log_kernels() -> None:
    """Load what checks the records that are appended, and have the log use it."""
    _load("log", _log_kernels)


def load_cleaner_kernels() -> None:
    """Load what the cleaner works with; returns at once when it is there."""
    _load("cleaner", lambda: importlib.import_module(_CLEANER))


def load_look_kernels() -> None:
    """Load what finds records in batches of very many; returns at once when it is there."""
    _load("looks", lambda: importlib.import_module(_LOOKS))


class Demand:
    """Loads the log's kernels once they would have saved something; the event loop owns it."""

    def __init__(self) -> None:
        self._records_left = RECORDS_BEFORE

    def add_records(self, count: int) -> None:
        """Count records that were checked."""
        if self._records_left > 0:
            self._records_left -= count
            if self._records_left <= 0:
                start_warm_up()

    def add_syncs(self, count: int) -> None:
        """Count files that were not synced by the compiled thread."""
        self.add_records(_RECORDS_A_SYNC * count)


def start_warm_up() -> None:
    """Load the log's in a thread that no stop waits for: to compile can take minutes."""
    threading.Thread(target=ensure_log_kernels, name="warm-up", daemon=True).start()


def ensure_log_kernels() -> None:
    """Load the log's kernels, whatever comes of it: without them the plain twins serve."""
    try:
        load_log_kernels()
    except Exception:  # The root of a thread, or of what a thread can do without.
        logger.exception("could not load the kernels, so that the slow twins go on serving")


def _load(what: str, load: Callable[[], object]) -> None:
    with _loading:  # one after the other: together they would take more memory
        if what in _loaded:
            return
        started = time.monotonic()
        with compiler_given_back():
            load()
        gc.freeze()  # as at the start: modules, and what Numba keeps
        _loaded.add(what)
    logger.debug("loaded kernels of=%s seconds=%.2f", what, time.monotonic() - started)


def _log_kernels() -> None:
    from broker.durability import sync_thread
    from protocol import records
    from storage import reading, validation

    records.warm_up()
    validation.use_kernels()
    reading.use_kernels()
    sync_thread.use_kernel()


if __name__ == "__main__":
    warm_up()
