"""Text of others, for logs and terminals."""

from __future__ import annotations


def printable(text: str) -> str:
    """Write text so that it does nothing to a terminal, and stays in its line.

    A name may have any characters: such as end a line, colour what follows, or retitle a window.
    What cannot be printed is written as Python writes it.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
