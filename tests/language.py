"""Finds stiff English: `python -m tests.language broker/apis README.md` prints places and advice.

It reads comments, docstrings and other strings of Python modules, and all of other files.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SUFFIXES = {".py", ".md", ".js", ".html", ".css", ".scala"}

# Words that the project does without, and the words that readers expect in their place.
ADVICE = {
    r"told|tells?|telling": "report, return, log, send, say",
    r"anew": "again",
    r"lest": "so that ... not",
    r"be it|if so it is": "name the cases",
    r"whoever|whomever|whosoever": "name the person or the part",
    r"(?:by|for|from|of|to|with|and|or) who(?! (?:is|are|was|were|has|have)\b)": (
        "name the person or the part"
    ),
}
_BANNED = [(re.compile(rf"\b(?:{one})\b", re.IGNORECASE), said) for one, said in ADVICE.items()]

# A sentence that begins with a clause for a subject, and is no question.
_CLAUSE_FIRST = re.compile(
    r"""(?:^|[.:;!]\s+|[\"'`]{1,3})(?:Who|What|Whose|Whatever|Which)\b[^.?!]*(?:[.!]|$)"""
)
# A clause for a noun.
_BARE = re.compile(r"\b(?:what|whatever)\b(?![^.!]*\?)", re.IGNORECASE)

# Python 3.12 and later have an f-string in pieces.
_FSTRING_START = getattr(tokenize, "FSTRING_START", None)
_FSTRING_END = getattr(tokenize, "FSTRING_END", None)

_VALUE = re.compile(r"\{[^{}]*\}")
_NAME = re.compile(r"`\w+`")
_JAVASCRIPT_TEXT = re.compile(r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"|'[^'\n]*'|`[^`]*`", re.DOTALL)

TEST_NAME = re.compile(r"def (test_(?:who|whose|what|which|that)_\w+)")


class Finding(NamedTuple):
    """A place in a file, the words there, and what to do about them."""

    line: int
    words: str
    advice: str


def findings(path: Path) -> Iterator[Finding]:
    """Iterate over the phrases of a file that are not allowed."""
    for line, text in _texts(path):
        for pattern, advice in _BANNED:
            for match in pattern.finditer(text):
                yield _found(line, text, match, advice)
        for match in _CLAUSE_FIRST.finditer(text):
            yield _found(line, text, match, "begin with the subject: a noun")


def bare_clauses(path: Path) -> Iterator[Finding]:
    """Iterate over the clauses of a file that begin with "what": a noun is clearer for most."""
    for line, text in _texts(path):
        for match in _BARE.finditer(text):
            yield _found(line, text, match, "name the thing")


def _found(line: int, text: str, match: re.Match[str], advice: str) -> Finding:
    line += text.count("\n", 0, match.start())
    around = text[max(0, match.start() - 30) : match.end() + 40]
    return Finding(line, " ".join(around.split())[:110], advice)


@cache
def _texts(path: Path) -> Sequence[tuple[int, str]]:
    """Return the texts of a file, each with its first line's number."""
    source = path.read_text()
    if path.suffix == ".js":
        return tuple(_javascript(source))
    return tuple(_python(source) if path.suffix == ".py" else _paragraphs(source))


def _python(source: str) -> Iterator[tuple[int, str]]:
    """Iterate over the strings and comments of a module; comments in a row are one text."""
    comment: list[str] = []
    first = 0
    for token in _whole_strings(source):
        if token.type == tokenize.COMMENT:
            first = first or token.start[0]
            comment.append(token.string.lstrip("# "))
        elif token.type != tokenize.NL:
            if comment:
                yield first, "\n".join(comment)
                comment, first = [], 0
            if token.type == tokenize.STRING:
                yield token.start[0], _without_names(token.string)


def _whole_strings(source: str) -> Iterator[tokenize.TokenInfo]:
    """Iterate over the tokens of a module; an f-string is one, as it is before Python 3.12."""
    lines = source.splitlines(keepends=True)
    depth, begin = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == _FSTRING_START:
            begin = begin if depth else token.start
            depth += 1
        elif token.type == _FSTRING_END:
            depth -= 1
            if not depth:
                text = _between(lines, begin, token.end)
                yield tokenize.TokenInfo(tokenize.STRING, text, begin, token.end, token.line)
        elif not depth:
            yield token


def _between(lines: Sequence[str], begin: tuple[int, int], end: tuple[int, int]) -> str:
    """Return the text between two places: a line's number, from 1 on, and a column."""
    found = list(lines[begin[0] - 1 : end[0]])
    found[-1] = found[-1][: end[1]]
    found[0] = found[0][begin[1] :]
    return "".join(found)


def _without_names(string: str) -> str:
    """Return a string without names of code: values of an f-string, names between backticks."""
    is_formatted = "f" in string[: string.index(string[-1])].lower()
    return _NAME.sub("``", _VALUE.sub("{}", string) if is_formatted else string)


def _javascript(source: str) -> Iterator[tuple[int, str]]:
    for match in _JAVASCRIPT_TEXT.finditer(source):
        text = re.sub(r"\$\{[^}]*\}", "", match[0])
        yield source.count("\n", 0, match.start()) + 1, text


def _paragraphs(source: str) -> Iterator[tuple[int, str]]:
    line = 1
    for text in source.split("\n\n"):
        yield line, text
        line += text.count("\n") + 2


def files(names: list[str]) -> Iterator[Path]:
    """Iterate over the files with text, of some files and folders."""
    for name in names:
        path = ROOT / name
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (one for one in found if one.suffix in SUFFIXES and "pycache" not in str(one))


def main(names: list[str]) -> None:
    """Print what is found, and how often."""
    count = 0
    for path in files(names):
        for one in sorted([*findings(path), *bare_clauses(path)]):
            count += 1
            print(f"{path.relative_to(ROOT)}:{one.line}: {one.words!r}: {one.advice}")
    print(count)


if __name__ == "__main__":
    main(sys.argv[1:])
