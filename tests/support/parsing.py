"""Parses Python files."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parse(path: Path) -> ast.Module:
    """Return the tree of a file.

    Before Python 3.11.8 the parser fails now and then, when garbage is looked for meanwhile
    (gh-106905): then it tries again.
    """
    text = path.read_text()
    try:
        return ast.parse(text)
    except SystemError:
        return ast.parse(text)
