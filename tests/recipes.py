"""The commands of the Makefile's recipes, with the variables that stand for commands expanded."""

from __future__ import annotations

import re
from collections.abc import Mapping

_COMMAND = re.compile(r"\$\((?:call )?(INSTALL|COMPILE|PIP|HASHED)(?:,(.*?))?\)")


def variables(text: str) -> dict[str, str]:
    """Return the values of a Makefile's variables, as they are written."""
    return dict(re.findall(r"^(\w+) :?= (.*)$", text, re.M))


def expand(text: str, known: Mapping[str, str]) -> str:
    """Put the commands, with their arguments, in the place of their variables."""
    while found := _COMMAND.search(text):
        text = text.replace(found[0], known[found[1]].replace("$(1)", found[2] or ""))
    return text
