"""Java's regular expressions and replacements in Python, for rules that name principals.

Expressions are Python's, which can express those of Java that such rules use. An expression that
cannot be translated is refused, and never given another meaning.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence

from odradek.config.errors import ConfigError

_PIECE = re.compile(r"\\(?P<plain>.)|\$(?P<digits>[0-9]+)|\$\{(?P<name>\w+)\}|\$|\\", re.DOTALL)
# The tokens of an expression; _PYTHONS has those that Java and Python write differently.
_TOKEN = re.compile(r"\\.|\(\?<(?=[A-Za-z])|\[\^?\]?|\]|\.|[^\\]", re.DOTALL)
_DOT_IS_ALL = re.compile(r"\(\?[a-zA-Z]*s")
_PYTHONS = {
    r"\z": r"\Z",
    r"\Z": r"(?=\n?\Z)",
    "(?<": "(?P<",
    ".": "[^\\n\\r\\u0085\\u2028\\u2029]",
}

Replacement = Sequence[str | int]
"""Literal texts, and numbers of groups."""


class NoRuleApplies(Exception):
    """None of the rules gives a principal a name."""


def compile_java(option: str, word: str, text: str) -> re.Pattern[str]:
    """Translate an expression of a rule; raise ConfigError, which names the option."""
    try:
        with warnings.catch_warnings():
            # Python warns of syntax whose meaning may change.
            warnings.simplefilter("error")
            return re.compile("".join(_translated(text)), re.ASCII)
    except (re.error, OverflowError, ValueError, Warning) as error:
        raise ConfigError(
            f"{option}: the expression of `{word}` is not understood: {error}"
        ) from None


def _translated(text: str) -> Iterator[str]:
    """Yield Java's expression in Python's syntax; raise ValueError for nested sets."""
    dot_is_all = _DOT_IS_ALL.search(text) is not None
    in_set = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        if in_set:
            if token.startswith("["):
                raise ValueError("a [ within [ ] must be escaped")
            in_set = token != "]"
            yield token
            continue
        in_set = token.startswith("[")
        if token == "." and dot_is_all:
            yield token
        else:
            yield _PYTHONS.get(token, token)


def read_replacement(
    option: str, word: str, text: str, expression: re.Pattern[str]
) -> Iterator[str | int]:
    """Cut a replacement into texts and groups (Matcher.appendReplacement).

    Raises ConfigError for a group that the expression does not have.
    """
    position = 0
    for match in _PIECE.finditer(text):
        yield text[position : match.start()]
        position = match.end()
        if match["plain"] is not None:
            yield match["plain"]
            continue
        if match["name"] is not None and match["name"] in expression.groupindex:
            yield expression.groupindex[match["name"]]
            continue
        digits = match["digits"] or ""
        count = next(
            (n for n in range(len(digits), 0, -1) if int(digits[:n]) <= expression.groups), 0
        )
        if not count:
            raise ConfigError(
                f"{option}: the replacement in `{word}` has {match[0]}, which is no group of "
                "the expression; write \\\\ before a $ that is meant literally"
            )
        yield int(digits[:count])
        yield digits[count:]
    yield text[position:]


def replace(
    expression: re.Pattern[str], replacement: Replacement, text: str, *, is_global: bool = True
) -> str:
    """Replace every match, or the first, as Java's replaceAll and replaceFirst do."""
    made: list[str] = []
    copied = position = 0
    while position <= len(text):
        match = expression.search(text, position)
        if match is None:
            break
        made.append(text[copied : match.start()])
        made += (piece if isinstance(piece, str) else match[piece] or "" for piece in replacement)
        copied = match.end()
        if not is_global:
            break
        position = copied + (match.start() == copied)
    made.append(text[copied:])
    return "".join(made)


def in_case(text: str, case: str) -> str:
    """Return a text in lower (L) or upper (U) case, else unchanged."""
    return {"L": text.lower, "U": text.upper}.get(case, lambda: text)()
