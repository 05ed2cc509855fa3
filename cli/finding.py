"""One thing that doctor has checked."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and what to do about it where something is to be done."""

    state: str
    subject: str
    text: str
    advice: str = ""
