"""How a certificate's distinguished name becomes the name of a principal (SslPrincipalMapper).

    ssl.principal.mapping.rules=RULE:^CN=([^,]*),OU=Sales.*$/$1/L,DEFAULT

The first rule counts whose expression matches the whole name. It stands between RULE: and the
first slash; every place where it matches is replaced by what follows, where $1 is what its first
group holds; L or U at the end makes that lower or upper case. DEFAULT takes the name as it is.
Expressions are Python's, which read those of Java that such rules consist of; one that is not
understood is refused, and never taken for another.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from config.errors import ConfigError

OPTION = "ssl.principal.mapping.rules"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\$([0-9]+)")
_PIECE = re.compile(r"\\(?P<plain>.)|\$(?P<digits>[0-9]+)|\$\{(?P<name>\w+)\}|\$|\\", re.DOTALL)
# The tokens of an expression that Java and Python have different words for, or none.
_TOKEN = re.compile(r"\\.|\(\?<(?=[A-Za-z])|\[\^?\]?|\]|\.|[^\\]", re.DOTALL)
_DOT_IS_ALL = re.compile(r"\(\?[a-zA-Z]*s")
_PYTHONS = {
    r"\z": r"\Z",
    r"\Z": r"(?=\n?\Z)",
    "(?<": "(?P<",
    ".": "[^\\n\\r\\u0085\\u2028\\u2029]",
}


class NoRuleApplies(Exception):
    """None of the rules matches a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """An expression and what replaces its matches; without an expression it is DEFAULT."""

    expression: re.Pattern[str] | None
    # Texts to be put down as they are, and numbers of groups.
    replacement: tuple[str | int, ...]
    case: str

    def apply(self, name: str) -> str | None:
        """Return what the rule makes of a name; None when it does not match."""
        if self.expression is None:
            return name
        if self.expression.fullmatch(name) is None:
            return None
        found = "".join(self._replaced(self.expression, name))
        return {"L": found.lower, "U": found.upper}.get(self.case, lambda: found)()

    def _replaced(self, expression: re.Pattern[str], name: str) -> Iterator[str]:
        """Yield the name in pieces, every match replaced, found in Java's way (replaceAll)."""
        copied = position = 0
        while position <= len(name):
            match = expression.search(name, position)
            if match is None:
                break
            yield name[copied : match.start()]
            for piece in self.replacement:
                yield piece if isinstance(piece, str) else match[piece] or ""
            copied = match.end()
            position = copied + (match.start() == copied)
        yield name[copied:]


class PrincipalRules:
    """The rules of a listener, in their order."""

    def __init__(self, text: str) -> None:
        """Read the rules. Raises ConfigError for those that cannot be told or understood."""
        words = [match[1] for match in _SPLITTER.finditer(text.strip())]
        self._text = text
        self._rules = [rule for word in words if (rule := _parse(word)) is not None]

    def apply(self, name: str) -> str:
        """Return the principal's name for a distinguished name. Raises NoRuleApplies."""
        for rule in self._rules:
            found = rule.apply(name)
            if found is not None:
                return found
        raise NoRuleApplies(f"no rule of {OPTION} applies to {name}")


def _parse(word: str) -> _Rule | None:
    """Read one rule; None is one of no text, which is passed over."""
    match = _PARSER.match(word)
    assert match is not None, "the last alternative matches anything"
    if match.end() != len(word):
        rest = word[match.end() :]
        raise ConfigError(f"{OPTION}: Invalid rule: `{word}`, unmatched substring: `{rest}`")
    if match[1] is not None:
        return _Rule(None, (), "")
    if match[2] is None:
        return None
    expression = _compile(word, match[2])
    escaped = _escape_unknown(match[3], expression.groups)
    return _Rule(expression, tuple(_pieces(word, escaped, expression)), match[4])


def _compile(word: str, text: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            # What Python may come to read in another way earns a warning.
            warnings.simplefilter("error")
            return re.compile("".join(_translated(text)), re.ASCII)
    except (re.error, OverflowError, ValueError, Warning) as error:
        raise ConfigError(
            f"{OPTION}: the expression of `{word}` is not understood: {error}"
        ) from None


def _translated(text: str) -> Iterator[str]:
    """Yield Java's expression in Python's words. Raises ValueError for sets within sets."""
    dot_is_all = _DOT_IS_ALL.search(text) is not None
    in_set = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        if in_set:
            if token.startswith("["):
                raise ValueError("a [ within [ ] has to be escaped")
            in_set = token != "]"
            yield token
            continue
        in_set = token.startswith("[")
        if token == "." and dot_is_all:
            yield token
        else:
            yield _PYTHONS.get(token, token)


def _escape_unknown(text: str, group_count: int) -> str:
    """Make literal texts of references to groups that there are not, exactly as Kafka does.

    That includes where it puts the backslash once it has put one: places are those of the text
    as it was.
    """
    if group_count == 0:
        return text
    value = text
    for match in _REFERENCE.finditer(text):
        if match[1].startswith("0"):
            continue
        number = int(match[1])
        while number > group_count and number >= 10:
            number //= 10
        if number > group_count:
            start = match.start(1) - 1
            value = f"{value[:start]}\\{value[start:]}"
    return value


def _pieces(word: str, text: str, expression: re.Pattern[str]) -> Iterator[str | int]:
    """Cut a replacement into texts and groups (Matcher.appendReplacement)."""
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
                f"{OPTION}: the replacement in `{word}` has {match[0]}, which is no group of "
                "the expression; write \\\\ before a $ that stands for itself"
            )
        yield int(digits[:count])
        yield digits[count:]
    yield text[position:]
