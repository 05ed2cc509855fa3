"""The result of one check of doctor."""

from __future__ import annotations

from odradek.dataclass import dataclass

OK, WARNING, PROBLEM = "ok", "warning", "problem"
# The advice about a problem whose text names the remedy.
NO_START = "odradek serve does not start with it"


@dataclass(frozen=True, slots=True)
class Finding:
    """A state, a sentence about it, and advice where the user should act."""

    state: str
    subject: str
    text: str
    advice: str = ""
