"""How a certificate's distinguished name becomes the name of a principal (SslPrincipalMapper).

    ssl.principal.mapping.rules=RULE:^CN=([^,]*),OU=Sales.*$/$1/L,DEFAULT

The first rule applies whose expression matches the whole name. The expression stands between
RULE: and the first slash. The text after it replaces every match, with the match's first group
for $1; L or U at the end turns the result into lower or upper case. DEFAULT keeps the name
unchanged. Expressions are Python's, which can express those of Java that such rules use. An
expression that cannot be translated is refused, and never given another meaning.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from odradek.config.errors import ConfigError
from odradek.dataclass import dataclass

OPTION = "ssl.principal.mapping.rules"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\$([0-9]+)")
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


class NoRuleApplies(Exception):
    """None of the rules matches a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """An expression and the replacement for its matches; DEFAULT has no expression."""

    expression: re.Pattern[str] | None
    # Literal texts, and numbers of groups.
    replacement: tuple[str | int, ...]
    case: str

    def apply(self, name: str) -> str | None:
        """Return the name that the rule makes of a name; None when it does not match."""
        if self.expression is None:
            return name
        if self.expression.fullmatch(name) is None:
            return None
        found = "".join(self._replaced(self.expression, name))
        return {"L": found.lower, "U": found.upper}.get(self.case, lambda: found)()

    def _replaced(self, expression: re.Pattern[str], name: str) -> Iterator[str]:
        """Yield the name in pieces, with every match replaced as by Java's replaceAll."""
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
        """Read the rules; raise ConfigError for a rule that cannot be parsed or translated."""
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
    """Read one rule; return None for an empty one, which is ignored."""
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
            # Python warns of syntax whose meaning may change.
            warnings.simplefilter("error")
            return re.compile("".join(_translated(text)), re.ASCII)
    except (re.error, OverflowError, ValueError, Warning) as error:
        raise ConfigError(
            f"{OPTION}: the expression of `{word}` is not understood: {error}"
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


def _escape_unknown(text: str, group_count: int) -> str:
    """Escape references to groups that do not exist, exactly as Kafka does.

    Kafka takes the place of each backslash from the original text, even once it has inserted
    another one; so does this function.
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
                "the expression; write \\\\ before a $ that is meant literally"
            )
        yield int(digits[:count])
        yield digits[count:]
    yield text[position:]
