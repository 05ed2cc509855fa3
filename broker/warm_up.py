"""Loads the compiled kernels: `python -m broker.warm_up` compiles them once, into the cache.

The broker does it in a thread after it listens; until then the plain twins serve.
"""

from __future__ import annotations

import logging
import time

logger = logging.getLogger(__name__)


def warm_up() -> None:
    """Load or compile every kernel, then have the log use them."""
    started = time.monotonic()
    from protocol import records
    from storage import validation

    records.warm_up()
    validation.use_kernels()
    logger.debug("loaded kernels seconds=%.2f", time.monotonic() - started)


if __name__ == "__main__":
    warm_up()
