"""Foreign text, for logs and terminals."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return text that has no effect on a terminal, and stays on its line.

    A name may have any characters, such as some that end a line, colour the text after them, or
    retitle a window. Characters that cannot be printed are written as Python's repr() has them.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
