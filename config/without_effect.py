"""The list of options without effect in docs/compatibility.md.

`python -m odradek.config.without_effect docs/compatibility.md` generates it again, between its two
marks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from odradek.config.effective import declared_options
from odradek.config.inert import INERT_GROUPS
from odradek.config.option import Option, fallbacks_of
from odradek.config.topic import TopicConfig

_COMMAND = "python -m odradek.config.without_effect docs/compatibility.md"
BEGIN = f"<!-- Made by `{_COMMAND}`: from here -->\n"
END = "<!-- to here -->\n"


def without_effect() -> str:
    """Return the list as Markdown."""
    return "\n".join([*_declared_lists(), *_inert_lists()])


def replaced(page: str) -> str:
    """Return a page with a new list. Raises ValueError for a page without the two marks."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"the page lacks the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{without_effect()}\n{END}{after}"


def _declared_lists() -> Iterator[str]:
    """List the options that are declared here and have no effect, by the reason."""
    reasons: dict[str, list[Option]] = {}
    for option in (*declared_options(), *fallbacks_of(TopicConfig)):
        if option.inert:
            reasons.setdefault(option.inert, []).append(option)
    for reason, options in sorted(reasons.items()):
        heading = reason.removeprefix("Accepted without effect").lstrip(": ")
        yield f"**{heading[0].upper()}{heading[1:]}** {_names(options)}\n"


def _inert_lists() -> Iterator[str]:
    for group in INERT_GROUPS:
        yield f"**{group.title}.** {group.reason} {_names(group.options)}\n"


def _names(options: Iterable[Option]) -> str:
    shown = sorted({one.name for one in options if not one.internal})
    return ", ".join(f"`{name}`" for name in shown)


if __name__ == "__main__":
    _page = Path(sys.argv[1])
    _page.write_text(replaced(_page.read_text()))
