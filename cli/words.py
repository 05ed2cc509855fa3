"""Sizes, durations, moments, counts and a broker's texts, written for people."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from odradek.config.printable import printable

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_SPANS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_CENT = 0.01
# A moment beyond this means never, and datetime may not represent it.
_YEARS_100_MS = 100 * 365 * 86_400_000


def size(size_bytes: float) -> str:
    """Write a number of bytes: 3.2 MB."""
    amount, unit = float(size_bytes), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}" if unit else f"{int(size_bytes)} B"


def duration(span_ms: int) -> str:
    """Write a time span by its two largest units: 1 d 3 h."""
    if span_ms < 1_000:
        return f"{max(span_ms, 0)} ms"
    if span_ms < 60_000:
        return f"{span_ms / 1000:.1f} s"
    left = round(span_ms / 1000)
    parts: list[str] = []
    for name, seconds in _SPANS:
        count, left = divmod(left, seconds)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
    return " ".join(filter(None, parts[:2]))


def moment(at_ms: int, now_ms: int) -> str:
    """Write a moment: 2026-11-21 22:22:50, in 1 h 3 min."""
    if abs(at_ms - now_ms) > _YEARS_100_MS:
        return "never" if at_ms > now_ms else "long ago"
    at = datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
    return f"{at}, {distance(at_ms, now_ms)}"


def distance(at_ms: int, now_ms: int) -> str:
    """Write the distance of a moment from now: in 1 h 3 min, 5 s ago."""
    if at_ms > now_ms:
        return f"in {duration(at_ms - now_ms)}"
    return f"{duration(now_ms - at_ms)} ago"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number of things: 1 tombstone, 2,000 tombstones."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def money(dollars: float | None) -> str:
    """Write a sum of dollars, a small one by its first two digits: $1.20, $0.000021."""
    if dollars is None:
        return "unknown"
    if 0 < dollars < _CENT:
        return f"${dollars:.{1 - math.floor(math.log10(dollars))}f}"
    return f"${dollars:,.2f}"


def requests(use: Mapping[str, Any]) -> str:
    """Write requests and their costs: 2 PUTs of 1.5 MB, 1 GET of 9 B, $0.000010."""
    puts = f"{count(use['puts'], 'PUT')} of {size(use['sent_bytes'])}"
    gets = f"{count(use['gets'], 'GET')} of {size(use['received_bytes'])}"
    return f"{puts}, {gets}, {money(use['dollars'])}"


def state_name(state: str) -> str:
    """Return a state of Kafka's as the constant that JSON has: PrepareCommit, PREPARE_COMMIT."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", state).upper()


def state_text(name: str) -> str:
    """Write the constant of a state: PREPARE_COMMIT, prepare commit."""
    return name.lower().replace("_", " ")


def time_text(timestamp_ms: int) -> str:
    """Return a record's timestamp, in UTC."""
    if timestamp_ms < 0:
        return "no timestamp"
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable_answer(answer: Mapping[str, object]) -> dict[str, object]:
    """Return a broker's answer with all of its texts made printable."""
    return {name: _printable(value) for name, value in answer.items()}


def key_text(data: Mapping[str, Any]) -> str:
    """Return bytes as the broker shows them in JSON: their text, or base64 if not printable."""
    text: str | None = data["text"]
    shown = text if text is not None and text.isprintable() else f"base64:{data['base64']}"
    # The field is absent where the broker cuts nothing.
    return cut_text(shown, data["size_bytes"]) if data.get("is_cut") else shown


def cut_text(shown: str, size_bytes: int) -> str:
    """Return the beginning of a text, with the size of the whole text."""
    return f"{shown}… ({size_bytes:,} bytes)"


def _printable(value: object) -> object:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return printable_answer(value)
    return [_printable(one) for one in value] if isinstance(value, list) else value
