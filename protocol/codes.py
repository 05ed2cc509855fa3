"""Enums of Kafka's protocol to which later versions may add codes."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class OpenCode(IntEnum):
    """An enum with a member UNKNOWN, which stands for each number that has no member."""

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls["UNKNOWN"]
