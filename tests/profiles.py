"""How many examples a property is tested with: the default profile's number, or in proportion."""

from __future__ import annotations

from hypothesis import settings

_DEFAULT = 100


def examples(count: int) -> int:
    """Return what stands for `count` examples of the default profile in the one in force."""
    return max(1, count * settings().max_examples // _DEFAULT)
