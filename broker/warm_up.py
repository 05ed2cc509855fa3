"""Loads the compiled kernels: `python -m broker.warm_up` compiles them once, into the cache.

The broker does it in a thread after it listens; until then the plain twins serve.
"""

from __future__ import annotations

import gc
import importlib
import logging
import threading
import time

logger = logging.getLogger(__name__)


def warm_up() -> None:
    """Load or compile every kernel, then have the log use them."""
    started = time.monotonic()
    from protocol import records
    from storage import validation

    records.warm_up()
    validation.use_kernels()
    importlib.import_module("cleaner.clean")  # the cleaner's kernels come with it
    logger.debug("loaded kernels seconds=%.2f", time.monotonic() - started)


def start_warm_up() -> None:
    """Warm up in a thread that no stop waits for: to compile takes minutes on a slow machine."""
    threading.Thread(target=_run, name="warm-up", daemon=True).start()


def _run() -> None:
    try:
        warm_up()
        gc.freeze()  # as at the start: modules, and what Numba keeps
    except Exception:  # The root of a thread.
        logger.exception("could not load the kernels, so that the slow twins go on serving")


if __name__ == "__main__":
    warm_up()
