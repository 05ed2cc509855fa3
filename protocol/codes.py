"""Codes of Kafka's protocol that may get new numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class OpenCode(IntEnum):
    """A code that has a member UNKNOWN, which numbers without a member become."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls["UNKNOWN"]
