"""Ctrl-C at a moment of the command's choice."""

from __future__ import annotations

import signal
from types import FrameType


class Interruption:
    """Notes Ctrl-C, for a command that ends at its next step; a second one acts at once.

    KeyboardInterrupt may come between any two steps of Python's own locks, and leave one of them
    held for ever.
    """

    def __init__(self) -> None:
        self.is_asked = False

    def __enter__(self) -> Interruption:
        self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
