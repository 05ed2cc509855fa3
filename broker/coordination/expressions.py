"""Regular expressions that clients bring, in RE2's language: matched in time linear in a name."""

from __future__ import annotations

from typing import Any

import re2

# Of RE2's own 8 MiB some hundred bytes take all. Enough for 32 KiB of names, or for twenty classes
# of all letters; what takes more is refused as too large.
_MEMORY_MAX = 2**20


def compile_expression(text: str) -> Any:
    """Compile an expression; raises re2.error for what is none, or is too large."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    try:
        return re2.compile(text, options)
    finally:
        re2.purge()  # else the last 128 of anybody's stay in memory
