"""Loads the compiled kernels.

`python -m odradek.broker.process.warm_up` compiles them into the cache.

The broker loads the log's kernels in a thread once their plain twins have had some work, and the
cleaner's kernels when there is a log to clean. Until then the plain twins serve, and the compiler,
which comes with the first kernels, is not loaded. Its code is given back while they load.
"""

from __future__ import annotations

import gc
import importlib
import logging
import threading
import time
from collections.abc import Callable

from odradek.broker.process.code_memory import compiler_given_back

logger = logging.getLogger(__name__)

# Importing it compiles or loads all kernels of the cleaner.
_CLEANER = "odradek.cleaner.passes.clean"
_RECORDS = "odradek.protocol.record_kernels"
# The records that plain twins check before the log's kernels are loaded. A twin takes 2 us longer
# for a record than a kernel. Loading takes half a second of a processor, in which a round trip
# takes twice as long, and one in a hundred 5 ms. So it waits until the twins have lost a tenth of
# that, which a client that sends one record at a time may never bring about.
RECORDS_BEFORE = 25_000
# The extra time of a sync by a thread that needs the interpreter, in records: some 20 us.
_RECORDS_A_SYNC = 10
_loading = threading.Lock()
_loaded: set[str] = set()


def warm_up() -> None:
    """Load or compile every kernel, and make the log use its own."""
    load_log_kernels()
    load_cleaner_kernels()
    load_record_kernels()


def load_log_kernels() -> None:
    """Load the kernels that check appended records, and make the log use them."""
    _load("log", _log_kernels)


def load_cleaner_kernels() -> None:
    """Load the cleaner's kernels; returns at once when they are loaded."""
    _load("cleaner", lambda: importlib.import_module(_CLEANER))


def load_record_kernels() -> None:
    """Load the kernels that find records in large batches; returns at once if they are loaded."""
    _load("records", lambda: importlib.import_module(_RECORDS))


class Demand:
    """Loads the log's kernels once they would have saved time; the event loop owns it."""

    def __init__(self) -> None:
        self._records_left = RECORDS_BEFORE

    def add_records(self, count: int) -> None:
        """Count records that were checked."""
        if self._records_left > 0:
            self._records_left -= count
            if self._records_left <= 0:
                start_warm_up()

    def add_syncs(self, count: int) -> None:
        """Count files that no compiled thread synced."""
        self.add_records(_RECORDS_A_SYNC * count)


def start_warm_up() -> None:
    """Load the log's kernels in a thread that no stop waits for: compiling can take minutes."""
    threading.Thread(target=ensure_log_kernels, name="warm-up", daemon=True).start()


def ensure_log_kernels() -> None:
    """Load the log's kernels; log a failure, after which the plain twins continue to serve."""
    try:
        load_log_kernels()
    except Exception:  # the root of a thread, or work that a thread can do without
        logger.exception("could not load the kernels: their slow twins continue to serve")


def _load(what: str, load: Callable[[], object]) -> None:
    with _loading:  # one load after the other: two at once would take more memory
        if what in _loaded:
            return
        started = time.monotonic()
        with compiler_given_back():
            load()
        gc.freeze()  # as at the start: modules, and the objects that Numba keeps
        _loaded.add(what)
    logger.debug("loaded kernels of=%s seconds=%.2f", what, time.monotonic() - started)


def _log_kernels() -> None:
    from odradek.broker.durability import sync_thread
    from odradek.protocol import records
    from odradek.storage import reading, validation

    records.warm_up()
    validation.use_kernels()
    reading.use_kernels()
    sync_thread.use_kernel()


if __name__ == "__main__":
    warm_up()
