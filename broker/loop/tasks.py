"""Tasks in the background. An error that ends a task is logged at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

logger = logging.getLogger(__name__)


def start_task(what: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task, which the caller keeps and cancels; a bug in it is logged with a traceback."""
    task = asyncio.get_running_loop().create_task(work, name=what)
    task.add_done_callback(partial(_report, what))
    return task


def _report(what: str, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("ended by a bug task=%s", what, exc_info=task.exception())
