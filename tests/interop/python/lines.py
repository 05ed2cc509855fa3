"""The lines that a program reads and says."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

Answering = Callable[[list[Any]], None]


def serve(answering: Answering, errors: type[Exception]) -> None:
    """Carry out each line's request, and answer it."""
    for line in sys.stdin:
        try:
            answering(json.loads(line))
        except errors as error:
            tell({"error": f"{type(error).__name__}: {error}"})
        else:
            tell({"answer": None})


def tell(value: object) -> None:
    """Print a value as one line."""
    print(json.dumps(value), flush=True)


def when_input_ends(act: Callable[[], object]) -> None:
    """Do something once there is no more to read."""

    def wait() -> None:
        while sys.stdin.readline():
            pass
        act()

    threading.Thread(target=wait, daemon=True).start()
