"""The commands that a page of the documentation shows, and what it says they print.

A block of a page that is to be run is a fence of `console`: a line that begins with `$ ` is a
command, which goes on in the next line after a backslash; what follows it is what it prints. A
block that no test can run has a comment above it that says why:

    <!-- not run: needs Docker -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = (
    "odradek", "make", "kcat", "curl", "pip", "pipx", "uv", "docker", "kafka-", "python -m",
    "spark-submit", "systemctl", "journalctl", "sudo", "git", "connect-",
    "openssl", "keytool",
)  # fmt: skip
RUN = "console"
_FENCE = re.compile(r"^(\s*)(`{3,})\s*(\w*)")
_NOT_RUN = re.compile(r"^\s*<!-- not run: (.+) -->$")
_INDENTED = re.compile(r"^(?: {4,}|\t)\s*(\S.*)$")
_NAMES = "|".join(re.escape(name) for name in PROGRAMS)
# A program's name, which variables of its environment may go before.
_COMMAND = re.compile(rf"^(?:\$ |[A-Z_]+=\S+ )*(?:{_NAMES})(?:\s|(?<=-)\S)")


@dataclass
class Command:
    """A line of shell, the number of its line in the page, and what the page says it prints."""

    line: int
    text: str
    shown: list[str] = field(default_factory=list)


@dataclass
class Block:
    """A piece of a page that is a fence, or indented; ``reason`` is why it is not run."""

    line: int
    language: str
    lines: list[str]
    reason: str | None

    @property
    def is_run(self) -> bool:
        """Whether its commands are for a test to run."""
        return self.language == RUN and self.reason is None

    @property
    def is_of_commands(self) -> bool:
        """Whether a reader would take lines of it for commands."""
        return self.language == RUN or any(_COMMAND.match(one) for one in self.lines)

    def commands(self) -> Iterator[Command]:
        """Give its commands; raises ValueError for output that no command is before."""
        command: Command | None = None
        for number, text in enumerate(self.lines, self.line + 1):
            if command is not None and command.text.endswith("\\"):
                command.text += f"\n{text}"
            elif text.startswith("$ "):
                if command is not None:
                    yield command
                command = Command(number, text.removeprefix("$ "))
            elif command is not None:
                command.shown.append(text)
            elif text.strip():
                raise ValueError(f"line {number} is no command, and none is before it")
        if command is not None:
            yield command


def blocks(page: Path) -> Iterator[Block]:
    """Give the blocks of a page in their order."""
    reason: str | None = None
    fence: tuple[str, str] | None = None
    block: Block | None = None
    for number, text in enumerate(page.read_text().splitlines(), 1):
        found = _FENCE.match(text)
        if fence is not None and block is not None:
            indent, ticks = fence
            if found and found[2] == ticks and not found[3]:
                yield block
                fence = block = None
            else:
                block.lines.append(text.removeprefix(indent))
            continue
        said = _NOT_RUN.match(text)
        indented = None if said else _INDENTED.match(text)
        if block is not None and not indented and text.strip():
            yield block
            block = None
        if found:
            fence = found[1], found[2]
            block, reason = Block(number, found[3], [], reason), None
        elif indented:
            block = block or Block(number, "", [], reason)
            block.lines.append(indented[1])
            reason = None
        elif said:
            reason = said[1]
        elif text.strip():
            reason = None
    if block is not None:
        yield block
