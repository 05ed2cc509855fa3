"""What ends a cleaning early."""

from __future__ import annotations


class CleaningAborted(Exception):
    """The log was deleted, or its cleaning paused: what was written so far is of no use."""
